"""An endpoint's URL can point at an engine, and at nothing that hands out credentials."""

import pytest

from tenants.core.checks import endpoint_url


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9101/v1",
        "https://engine.internal/v1",
        "http://[::1]:8000/v1",
        "http://vllm-0.vllm:8000",
        "http://10.1.2.3/v1",
        "http://engine_1:8000/v1",
    ],
)
def test_engines_can_be_reached(url: str) -> None:
    assert endpoint_url(url) == url


def test_a_trailing_slash_goes() -> None:
    assert endpoint_url("http://engine/v1/") == "http://engine/v1"


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "http://169.254.0.1/",
        "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/",
        "http://[febf::1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::169.254.169.254]/",
        "http://[::ffff:0:a9fe:a9fe]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[2001:0:0:0:0:0:5601:5601]/",
        "http://168.63.129.16/",
        "http://192.0.0.192/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://2852039166/",
        "http://0xA9FEA9FE/",
        "http://0251.0376.0251.0376/",
        "http://169.254.43518/",
        "http://169.254.169.254./",
        "http://metadata.google.internal/",
        "http://METADATA.google.internal./",
        "http://metadata/",
    ],
)
def test_metadata_and_link_local_are_refused_in_every_spelling(url: str) -> None:
    with pytest.raises(ValueError, match=r"refused|neither a name nor a plain IP"):
        endpoint_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "engine:8000",
        "ftp://engine/v1",
        "file:///etc/passwd",
        "http://",
        "http:///v1",
        "http://user:secret@engine/v1",
        "http://@engine/v1",
        "http://engine/v1?key=1",
        "http://engine/v1?",
        "http://engine/v1#x",
        "http://engine:0/v1",
        "http://a..b/v1",
        f"http://{'a' * 64}.example/v1",
        f"http://{'.'.join(['a' * 60] * 5)}/v1",
        "http://[v1.x]/v1",
        "http://engine:99999/v1",
        "http://engine:x/v1",
        "http://engine/v 1",
        "http://engine\n/v1",
        "http://engine\\@evil/v1",
        "http://[::1/v1",
        "http://exa%6dple/v1",
        "http://" + "a" * 3000,
    ],
)
def test_what_is_no_plain_http_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        endpoint_url(url)
