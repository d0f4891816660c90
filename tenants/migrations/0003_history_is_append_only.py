"""Revisions and audit entries only ever grow, whoever writes to the database.

Triggers refuse on both stores; on PostgreSQL they hold for the tables' owner too, and for sessions
that switch other triggers off. SQLite drops a table's triggers when a later migration rebuilds the
table: such a migration runs `guard` again (a test looks).
"""

from django.db import migrations

TABLES = ("tenants_auditentry", "tenants_policyrevision")

POSTGRES_FUNCTION = """
CREATE OR REPLACE FUNCTION fairlane_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never changed or deleted', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation';
END $$
"""
POSTGRES = (
    """CREATE TRIGGER fairlane_append_only BEFORE UPDATE OR DELETE ON {table}
       FOR EACH STATEMENT EXECUTE FUNCTION fairlane_append_only()""",
    """CREATE TRIGGER fairlane_no_truncate BEFORE TRUNCATE ON {table}
       FOR EACH STATEMENT EXECUTE FUNCTION fairlane_append_only()""",
    "ALTER TABLE {table} ENABLE ALWAYS TRIGGER fairlane_append_only",
    "ALTER TABLE {table} ENABLE ALWAYS TRIGGER fairlane_no_truncate",
)
SQLITE = tuple(
    f"""CREATE TRIGGER {{table}}_no_{verb} BEFORE {verb} ON {{table}}
        BEGIN SELECT RAISE(ABORT, '{{table}} rows are never changed or deleted'); END"""
    for verb in ("update", "delete")
)


def guard(apps, schema_editor):
    postgres = schema_editor.connection.vendor == "postgresql"
    if postgres:
        schema_editor.execute(POSTGRES_FUNCTION, None)  # None: its % are its own
    for table in TABLES:
        for statement in POSTGRES if postgres else SQLITE:
            schema_editor.execute(statement.format(table=table), None)


def unguard(apps, schema_editor):
    for table in TABLES:
        if schema_editor.connection.vendor == "postgresql":
            for trigger in ("fairlane_append_only", "fairlane_no_truncate"):
                schema_editor.execute(f"DROP TRIGGER {trigger} ON {table}")
        else:
            for verb in ("update", "delete"):
                schema_editor.execute(f"DROP TRIGGER {table}_no_{verb}")


class Migration(migrations.Migration):

    dependencies = [("tenants", "0002_soft_limits")]

    operations = [migrations.RunPython(guard, unguard)]
