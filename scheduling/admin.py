from scheduling.models import Simulation
from tenants.site import show

show(
    Simulation,
    ("id", "asked_by", "asked_at", "state", "ended_at", "fault"),
    ("asked_by",),
    ("state",),
    hidden=("order", "result"),
)
