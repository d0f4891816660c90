"""Answers that are given again to who asks again with the same Idempotency-Key."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class RememberedAnswer(models.Model):
    """The row is made before the call is carried out, in its transaction: whoever comes second
    waits for the first one's end. Without the caller's own key nobody can read the answer."""

    caller = models.CharField(max_length=160)
    name = models.CharField(max_length=64)  # keyed digest of the Idempotency-Key, hex
    call = models.CharField(max_length=64)  # keyed digest of method, address and body, hex
    at = models.DateTimeField(default=timezone.now)
    sealed = models.BinaryField(default=b"")

    class Meta:
        indexes = [models.Index(fields=["at"], name="remembered_at")]
        constraints = [
            models.UniqueConstraint(fields=["caller", "name"], name="remembered_once"),
        ]

    def __str__(self) -> str:
        return f"answer to {self.caller} of {self.at:%Y-%m-%d %H:%M:%S}"
