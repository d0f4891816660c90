from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_remembered_answers")]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="last_used_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(fields=["-created_at", "-id"], name="key_newest"),
        ),
        migrations.AddIndex(
            model_name="apikey",
            index=models.Index(
                fields=["tenant", "-created_at", "-id"], name="key_newest_of_tenant"
            ),
        ),
    ]
