"""What was, and who changed it: revisions and audit entries only ever grow.

1. A revision holds one whole, validated document; its number is the last one plus one.
2. Revisions and audit entries refuse update and delete, singly and in bulk.
3. `PolicyState` is one row; whoever swaps its version first may write, all others start over.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NoReturn, Self

from django.db import models
from django.db.models import F, Q
from django.utils import timezone


class Beginning(models.Func):
    """The first characters of a text: what an index holds of one that may be long. The number is
    literal: with a parameter in its place SQLite does not know its index again."""

    template = "SUBSTR(%(expressions)s, 1, 60)"
    output_field = models.TextField()

    @staticmethod
    def of(text: str) -> str:
        return text[:60]


class Immutable(TypeError):
    """Something tried to change or delete a revision or an audit entry."""


class AppendOnlyQuerySet(models.QuerySet[Any]):
    def _refuse(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise Immutable(f"{self.model.__name__} rows are never changed or deleted")

    update = _refuse
    delete = _refuse
    bulk_update = _refuse
    update_or_create = _refuse


class AppendOnly(models.Model):
    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise Immutable(f"{type(self).__name__} rows are never changed")
        kwargs["force_insert"] = True
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise Immutable(f"{type(self).__name__} rows are never deleted")


class PolicyRevision(AppendOnly):
    number = models.PositiveIntegerField(unique=True)
    parent = models.OneToOneField(  # null: revision 0, the empty document, which has no row
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="child"
    )
    at = models.DateTimeField(default=timezone.now)
    author = models.CharField(max_length=150)
    source = models.CharField(max_length=8)
    reason = models.TextField(blank=True)
    changes = models.PositiveIntegerField()
    packed = models.BinaryField()  # zlib of the canonical JSON: a large policy is 20 times smaller

    class Meta:
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"revision {self.number}"

    @staticmethod
    def pack(document: dict[str, Any]) -> bytes:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return zlib.compress(text.encode(), 6)

    @staticmethod
    def unpack(packed: bytes) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(zlib.decompress(packed))
        return loaded

    @property
    def document(self) -> dict[str, Any]:
        return self.unpack(bytes(self.packed))


class AuditEntry(AppendOnly):
    """One changed field of one object. An empty `field` is the object itself, made or removed."""

    at = models.DateTimeField(default=timezone.now)
    actor = models.CharField(max_length=150)
    source = models.CharField(max_length=8)  # page, api, command, admin, system
    address = models.CharField(max_length=64, blank=True)
    kind = models.CharField(max_length=16)
    name = models.CharField(max_length=200)
    field = models.TextField(blank=True)  # holds an endpoint's URL, which may be long
    old = models.JSONField(null=True, blank=True)
    new = models.JSONField(null=True, blank=True)
    reason = models.TextField(blank=True)
    revision = models.ForeignKey(
        PolicyRevision,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="audit_entries",
    )

    class Meta:
        ordering = ["-at", "-id"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["-at", "-id"], name="audit_newest"),
            models.Index(fields=["kind", "name", "-at", "-id"], name="audit_by_object"),
            models.Index(fields=["actor", "-at", "-id"], name="audit_by_actor"),
            models.Index(  # for a beginning of a name, too, whatever the database's collation
                fields=["name", "-at", "-id"],
                opclasses=["varchar_pattern_ops", "timestamptz_ops", "int8_ops"],
                name="audit_by_name",
            ),
            models.Index(fields=["source", "-at", "-id"], name="audit_by_source"),
            models.Index(fields=["kind", "-at", "-id"], name="audit_by_kind"),
            models.Index(Beginning("field"), F("at").desc(), F("id").desc(), name="audit_by_field"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(source__in=["page", "api", "command", "admin", "system"]),
                name="audit_source_known",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor}: {self.kind} {self.name} {self.field}"


class PolicyState(models.Model):
    """Which revision is in force. `version` also grows when a key changes."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    revision = models.PositiveIntegerField(default=0)
    version = models.PositiveBigIntegerField(default=0)

    class Meta:
        verbose_name = "policy in force"
        verbose_name_plural = "policy in force"
        constraints = [models.CheckConstraint(condition=Q(id=1), name="policy_state_is_one_row")]

    def __str__(self) -> str:
        return f"revision {self.revision}, version {self.version}"

    @classmethod
    def read(cls) -> Self:
        state, _ = cls.objects.get_or_create(id=1)
        return state
