"""Django settings; what an operator can set is read by `fairlane.environment`."""

from __future__ import annotations

from datetime import timedelta

from celery.schedules import crontab
from csp.constants import NONE, SELF

from fairlane import environment as given
from fairlane import signing_in, telemetry

ROOT = given.ROOT
DEBUG = given.flag("DEBUG", default=False)
SECRET_KEY = given.secret("SECRET_KEY", DEBUG)
ALLOWED_HOSTS = given.hosts("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = given.origins("CSRF_TRUSTED_ORIGINS")
TRUSTED_PROXIES = given.networks("TRUSTED_PROXIES")
HTTPS_ONLY = given.flag("HTTPS_ONLY", default=False)

# --- Fairlane -------------------------------------------------------------------------------
FAIRLANE_DATA_DIR = given.folder("FAIRLANE_DATA_DIR", ROOT / "var")
FAIRLANE_STATE_LOSS = given.choice("FAIRLANE_STATE_LOSS", "fail-open", ("fail-open", "fail-closed"))
FAIRLANE_LOG = given.choice("FAIRLANE_LOG", "text", ("text", "json"))
FAIRLANE_LOG_CALLS = given.choice("FAIRLANE_LOG_CALLS", "failed", ("none", "failed", "all"))
FAIRLANE_MAX_BODY_BYTES = given.number("FAIRLANE_MAX_BODY_BYTES", 16 * 2**20, 1024, 2**30)
FAIRLANE_MAX_CONNECTIONS = given.number("FAIRLANE_MAX_CONNECTIONS", 8192, 16, 1_000_000)
FAIRLANE_DRAIN_SECONDS = given.number("FAIRLANE_DRAIN_SECONDS", 30, 0, 3600)
FAIRLANE_KEEP_ALIVE_SECONDS = given.number("FAIRLANE_KEEP_ALIVE_SECONDS", 5, 1, 3600)
# A month that runs must be countable from its records, so they are kept for longer than one.
FAIRLANE_KEEP_RECORDS_DAYS = given.number("FAIRLANE_KEEP_RECORDS_DAYS", 35, 33, 3660)
FAIRLANE_KEEP_ROLLUPS_DAYS = given.number("FAIRLANE_KEEP_ROLLUPS_DAYS", 400, 33, 3660)
FAIRLANE_KEEP_SAMPLES_MINUTES = given.number("FAIRLANE_KEEP_SAMPLES_MINUTES", 60, 5, 10_080)
FAIRLANE_KEEP_MINUTES_DAYS = given.number("FAIRLANE_KEEP_MINUTES_DAYS", 3, 2, 60)
FAIRLANE_DATABASE_CONNECTIONS = given.number("FAIRLANE_DATABASE_CONNECTIONS", 20, 5, 500)
FAIRLANE_LINK_LOCAL_ENGINES = given.networks("FAIRLANE_LINK_LOCAL_ENGINES")
FAIRLANE_METRICS_FROM = given.networks("FAIRLANE_METRICS_FROM", "127.0.0.0/8,::1")
FAIRLANE_TENANT_KEYS = given.number("FAIRLANE_TENANT_KEYS", 100, 1, 1_000_000)
FAIRLANE_SESSION_HOURS = given.number("FAIRLANE_SESSION_HOURS", 168, 1, 8760)
FAIRLANE_LOGIN_ATTEMPTS = given.number("FAIRLANE_LOGIN_ATTEMPTS", 10, 0, 1000)
FAIRLANE_LOGIN_LOCK_MINUTES = given.number("FAIRLANE_LOGIN_LOCK_MINUTES", 15, 1, 1440)
OIDC = signing_in.oidc()
OTEL = telemetry.telemetry()
FAIRLANE_URL = given.url("FAIRLANE_URL", "", ("http", "https"))
REDIS_URL = given.redis_url("REDIS_URL")

# --- Django ---------------------------------------------------------------------------------
INSTALLED_APPS = [
    "fairlane",
    "tenants",
    "metering",
    "scheduling",
    "gateway",
    "servestatic",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "csp",
    "django_filters",
    "django_htmx",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "drf_spectacular",
    "rest_framework",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "servestatic.middleware.ServeStaticMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "fairlane.faults.Slashes",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tenants.sessions.Steps",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "tenants.zone.viewer_zone",
]
ROOT_URLCONF = "fairlane.urls"
ASGI_APPLICATION = "fairlane.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": given.database(
        "DATABASE_URL", FAIRLANE_DATA_DIR / "fairlane.sqlite3", FAIRLANE_DATABASE_CONNECTIONS
    ),
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-gb"

STATIC_URL = "static/"
STATIC_ROOT = FAIRLANE_DATA_DIR / "static"
STATICFILES_DIRS = [ROOT / "static"]
SERVESTATIC_USE_FINDERS = True  # no collectstatic step between a clone and a first page

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
OTP_TOTP_ISSUER = "Fairlane"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
if FAIRLANE_LOGIN_ATTEMPTS:
    INSTALLED_APPS.append("axes")
    MIDDLEWARE.append("axes.middleware.AxesMiddleware")
    AUTHENTICATION_BACKENDS.insert(0, "axes.backends.AxesStandaloneBackend")
    AXES_FAILURE_LIMIT = FAIRLANE_LOGIN_ATTEMPTS
    AXES_COOLOFF_TIME = timedelta(minutes=FAIRLANE_LOGIN_LOCK_MINUTES)
    globals().update(signing_in.THROTTLED)
if OIDC is not None:
    INSTALLED_APPS += [
        "allauth",
        "allauth.account",
        "allauth.socialaccount",
        "allauth.socialaccount.providers.openid_connect",
    ]
    MIDDLEWARE.append("allauth.account.middleware.AccountMiddleware")
    globals().update(signing_in.sso_settings(OIDC))

SESSION_COOKIE_AGE = FAIRLANE_SESSION_HOURS * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = given.flag("SECURE_COOKIES", default=HTTPS_ONLY)
if HTTPS_ONLY:
    SECURE_SSL_REDIRECT = SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_SECONDS = 365 * 24 * 3600
# Preloading is a registration of a whole domain: for its owner to make, not for a program in it.
SILENCED_SYSTEM_CHECKS = ["security.W021"]
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 2**20  # a policy of 10 000 tenants in a form takes half of it
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:", "blob:"],  # Plotly draws a PNG from a blob of its own
        "style-src": [SELF, "'unsafe-inline'"],  # Plotly sets inline styles on its own nodes
        "object-src": [NONE],
        "base-uri": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tenants.api.authentication.TokenAuth",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Fairlane admin API",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": [],  # they name enums of serializers; ours are pydantic types
}

# --- Mail, for alerts -----------------------------------------------------------------------
EMAIL_URL = given.url("EMAIL_URL", "", ("smtp", "smtps", "smtp+tls", "smtp+ssl", "consolemail"))
DEFAULT_FROM_EMAIL = given.env.str("EMAIL_FROM", default="fairlane@localhost")
globals().update(given.mail(EMAIL_URL))

# --- Celery ---------------------------------------------------------------------------------
CELERY_BROKER_URL = REDIS_URL or "folder://localhost"
CELERY_BROKER_TRANSPORT_OPTIONS = (
    given.redis_broker() if REDIS_URL else given.broker_folders(FAIRLANE_DATA_DIR / "broker")
)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1  # a worker that dies has few tasks with it
CELERY_BEAT_SCHEDULER = "fairlane.beat:OnlyBeat"
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"


def every(seconds: float, task: str) -> dict[str, object]:
    """`expires`: a worker that was away finds one call of each waiting, not a day's worth."""
    return {"task": task, "schedule": seconds, "options": {"expires": seconds}}


CELERY_BEAT_SCHEDULE: dict[str, dict[str, object]] = {
    "roll up usage": every(5.0, "metering.tasks.roll_up"),
    "roll up days": every(60.0, "metering.tasks.roll_up_days"),
    "note live state": every(10.0, "metering.tasks.note_live"),
    "watch for alerts": every(15.0, "metering.tasks.watch_alerts"),
    "send alerts": every(10.0, "metering.tasks.send_alerts"),
    "check the ledger": every(300.0, "metering.tasks.check_ledger"),
    "check the whole ledger": {
        "task": "metering.tasks.check_ledger",
        "schedule": crontab(hour=3, minute=17),
        "kwargs": {"whole": True},
        "options": {"expires": 3600.0},
    },
    "run simulations": every(60.0, "fairlane.tasks.run_simulations"),
    "forget answers": every(3600.0, "fairlane.tasks.forget_answers"),
    "forget sessions": every(3600.0, "fairlane.tasks.forget_sessions"),
    "forget live samples": every(300.0, "metering.tasks.purge_samples"),
    "forget minutes": every(3600.0, "metering.tasks.purge_minutes"),
    "make partitions": every(3600.0, "metering.tasks.make_partitions"),
    "forget old records": every(3600.0, "metering.tasks.purge_records"),
}

LOGGING = given.logging(FAIRLANE_LOG)
