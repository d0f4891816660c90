"""Tokens of the admin API as digests, with an end; what signing in asks of each person.

Until now tokens stood in clear text in `authtoken_token` (Django REST framework's own). They go on
working, for a year, and that table goes.
"""

import hashlib
import secrets
from datetime import timedelta

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

OLD = "authtoken_token"
ID_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


def take_over(apps, schema_editor):
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        if OLD not in connection.introspection.table_names(cursor):
            return
        cursor.execute(f"SELECT key, user_id FROM {OLD}")
        rows = cursor.fetchall()
    until = django.utils.timezone.now() + timedelta(days=365)
    apps.get_model("tenants", "AccessToken").objects.bulk_create(
        apps.get_model("tenants", "AccessToken")(
            public_id="".join(secrets.choice(ID_ALPHABET) for _ in range(12)),
            digest=hashlib.sha256(key.encode()).hexdigest(),
            user_id=user,
            created_by="upgrade",
            expires_at=until,
        )
        for key, user in rows
    )


def forget_old(apps, schema_editor):
    schema_editor.execute(f"DROP TABLE IF EXISTS {OLD}")


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0003_history_is_append_only'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='membership',
            name='from_sso',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='membership',
            name='must_change_password',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='membership',
            name='must_use_totp',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='membership',
            name='sessions_since',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.CreateModel(
            name='AccessToken',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('public_id', models.CharField(max_length=12, unique=True)),
                ('digest', models.CharField(max_length=64, unique=True)),
                ('name', models.CharField(blank=True, max_length=63)),
                ('role', models.CharField(blank=True, choices=[('admin', 'Admin'), ('operator', 'Operator'), ('tenant-admin', 'Tenant Admin'), ('tenant-viewer', 'Tenant Viewer')], max_length=16)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('created_by', models.CharField(max_length=150)),
                ('expires_at', models.DateTimeField()),
                ('revoked_at', models.DateTimeField(blank=True, null=True)),
                ('last_used_at', models.DateTimeField(blank=True, null=True)),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='access_tokens', to='tenants.tenant')),
                ('user', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='access_tokens', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', '-id'],
                'constraints': [models.CheckConstraint(condition=models.Q(models.Q(('role', ''), ('tenant__isnull', True), ('user__isnull', False)), models.Q(('role__in', ['admin', 'operator']), ('tenant__isnull', True), ('user__isnull', True)), models.Q(('role__in', ['tenant-admin', 'tenant-viewer']), ('tenant__isnull', False), ('user__isnull', True)), _connector='OR'), name='token_of_user_or_with_role'), models.UniqueConstraint(condition=models.Q(('revoked_at__isnull', True)), fields=('user',), name='token_one_per_user'), models.UniqueConstraint(condition=models.Q(('user__isnull', True)), fields=('name',), name='token_name_once')],
            },
        ),
        migrations.CreateModel(
            name='RecoveryCode',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('digest', models.CharField(max_length=64)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='recovery_codes', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('user', 'digest'), name='recovery_code_once')],
            },
        ),
        migrations.RunPython(take_over, migrations.RunPython.noop),
        migrations.RunPython(forget_old, migrations.RunPython.noop),
    ]
