"""Roll-ups by minute, quarter, hour and day, by key too; live state over time.

What was rolled up is counted again from its records, with what it lacked: no record is older than
they are kept, since roll-ups have not existed for as long.
"""

from django.db import migrations, models


def begin_anew(apps, schema_editor):
    minute, touched = (
        apps.get_model("metering", name) for name in ("UsageMinute", "TouchedMinute")
    )
    moments = minute.objects.values_list("start", flat=True).distinct()
    touched.objects.bulk_create((touched(minute=m) for m in moments.iterator(2000)), 500)
    minute.objects.all().delete()


def slot(name):
    """A level of usage above the minute."""
    group = ["start", "tenant", "application", "key", "model", "lane"]
    numbers = ["requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens"]
    return migrations.CreateModel(
        name=name,
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("start", models.DateTimeField()),
            ("tenant", models.CharField()),
            ("application", models.CharField(blank=True)),
            ("key", models.CharField(blank=True, default="")),
            ("model", models.CharField(blank=True)),
            ("lane", models.CharField(blank=True)),
            *((number, models.BigIntegerField(default=0)) for number in numbers),
            ("cost", models.FloatField(default=0.0)),
            *((tally, models.JSONField(default=dict)) for tally in ("ends", "throttled", "money")),
            *((f"{what}_ms", models.BinaryField(default=bytes)) for what in ("queue", "ttft", "tpot", "e2e")),
        ],
        options={
            "abstract": False,
            "indexes": [models.Index(fields=["tenant", "start"], name=f"{name.lower()}_tenant")],
            "constraints": [models.UniqueConstraint(fields=group, name=f"{name.lower()}_one_row")],
        },
    )


def live(name):
    sums = ["observed_s", "queued_s", "running_s", "waiting_s", "served", "load_s", "max_load_s"]
    sums += ["max_running_s", "endpoints_s", "oldest_wait_s", "debt", "bound", "weight"]
    return migrations.CreateModel(
        name=name,
        fields=[
            ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
            ("start", models.DateTimeField()),
            ("pool", models.CharField()),
            ("lane", models.CharField(blank=True, default="")),
            ("tenant", models.CharField(blank=True, default="")),
            *((field, models.FloatField(default=0.0)) for field in sums),
        ],
        options={
            "abstract": False,
            "constraints": [
                models.UniqueConstraint(
                    fields=["start", "pool", "lane", "tenant"], name=f"{name.lower()}_one_row"
                )
            ],
        },
    )


class Migration(migrations.Migration):
    dependencies = [("metering", "0002_ledger_check")]

    operations = [
        migrations.RemoveConstraint(model_name="usageminute", name="usage_one_row_a_minute"),
        migrations.RemoveIndex(model_name="usageminute", name="minute_tenant_minute"),
        migrations.RenameField("usageminute", "minute", "start"),
        migrations.AddField("usageminute", "key", models.CharField(blank=True, default="")),
        migrations.AddField("usageminute", "ends", models.JSONField(default=dict)),
        migrations.AddField("usageminute", "money", models.JSONField(default=dict)),
        migrations.AddField("usageminute", "tpot_ms", models.BinaryField(default=bytes)),
        slot("UsageQuarter"),
        slot("UsageHour"),
        slot("UsageDay"),
        migrations.CreateModel(
            name="TouchedQuarter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("quarter", models.DateTimeField(db_index=True)),
            ],
        ),
        live("LiveMinute"),
        live("LiveHour"),
        migrations.RunPython(begin_anew, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="usageminute",
            index=models.Index(fields=["tenant", "start"], name="usageminute_tenant"),
        ),
        migrations.AddConstraint(
            model_name="usageminute",
            constraint=models.UniqueConstraint(
                fields=["start", "tenant", "application", "key", "model", "lane"],
                name="usageminute_one_row",
            ),
        ),
    ]
