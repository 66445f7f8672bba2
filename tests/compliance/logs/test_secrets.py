"""Secrets are found by their form; what only looks like one, as code and documentation have it, is not."""

import random
import string
import time
from pathlib import Path

import pytest

from compliance.logs.privacy import secrets

LETTERS = string.ascii_letters + string.digits
BEGIN = "-----BEGIN"  # in pieces, so that no tool that searches this repository takes it for a key


def made(count, letters=LETTERS):
    return "".join(random.Random(7).choices(letters, k=count))


BASE64 = f"{made(64)}\n{made(64)}\n"
SECRETS = {
    "private key": [
        f"{BEGIN} OPENSSH PRIVATE KEY-----\n{BASE64}",
        f"{BEGIN} PRIVATE KEY-----\r\n{BASE64}",
        f"{BEGIN} RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0F\n\n{BASE64}",
        '{"key": "' + f"{BEGIN} EC PRIVATE KEY-----\\n{made(64)}" + '"}',
        f"{BEGIN} PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\n{BASE64}",
        f"PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nPublic-Lines: 1\n{made(64)}\nPrivate-Lines: 8\n",
    ],
    "key of AWS": ["aws_access_key_id = AKIA" + made(16, string.ascii_uppercase + string.digits)],
    "token of GitHub": ["ghp_" + made(36), f"github_pat_{made(22)}_{made(59)}", f"https://gho_{made(36)}@github.com"],
    "token of GitLab": ["glpat-" + made(20)],
    "token of Hugging Face": [f"export HF_TOKEN=hf_{made(34)}"],
    "key of NGC": [
        "nvapi-" + made(64),
        f"export NGC_API_KEY={made(84)}",
        f'NGC_CLI_API_KEY: "{made(84)}"',
        f"apikey = {made(84)}",
        f"docker login -u '$oauthtoken' -p {made(84)} nvcr.io",
    ],
    "key of Weights & Biases": [
        "export WANDB_API_KEY=" + made(40, "0123456789abcdef"),
        f"wandb login {made(40, '0123456789abcdef')}",
        f"os.environ['WANDB_API_KEY'] = '{made(40, '0123456789abcdef')}'",
        f"wandb.login(key='{made(40, '0123456789abcdef')}')",
    ],
    "token of Slack": [f"xox{kind}-{made(12, string.digits)}-1234567890123-{made(24)}" for kind in "baprs"],
    "key of Google": ["AIza" + made(35)],
    "key of Anthropic or OpenAI": [f"sk-{made(48)}", f"sk-proj-{made(60)}", f"sk-ant-{made(60)}"],
    "token of PyPI": ["pypi-AgE" + made(60)],
    "token of npm": ["npm_" + made(36)],
    "secret key of AWS": [f"export AWS_SECRET_ACCESS_KEY={made(39)}/", f"aws_secret_access_key = {made(40)}"],
    "password in a command": [f"curl -u jane:{made(12)} https://example.org", f"curl -s --user 'j:{made(9)}!'"],
    "password in a URL": [f"postgres://jane:{made(12)}@db.example.org/runs", f"redis://:{made(9)}@[::1]"],
    "password of a host": [
        f"machine ngc.example.org login jane password {made(14)}",
        f"machine a\nlogin b\npassword {made(9)}0",
    ],
    "password in an assignment": [f"DB_PASSWORD={made(12)}0", f'password = "{made(9)}0"', f"'passwd': '{made(9)}0!'"],
    "JSON web token": [f"eyJ{made(20)}.eyJ{made(40)}.{made(43)}"],
    "key in an assignment": [f'API_KEY = "{made(40)}"', f"'secret_access_key': '{made(40)}'"],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SECRETS.items() for text in texts])
def test_a_secret_is_found_and_not_repeated(kind, text):
    found = list(secrets(f"# code\n\n{text} # end\n".encode()))
    assert found and {mention.kind for mention in found} == {kind}
    assert found[0].line == 3 and len(found[0].text) == 5


JWT_IO = "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
NONE = [
    f"token = 'eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.{JWT_IO}.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c'",
    f'if "{BEGIN} RSA PRIVATE KEY-----" in text:\n    raise ValueError("a private key")\n',
    f"{BEGIN} PUBLIC KEY-----\n{BASE64}",
    f"{BEGIN} CERTIFICATE-----\n{BASE64}",
    "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
    "export GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "export HF_TOKEN=$HF_TOKEN WANDB_API_KEY=${WANDB_API_KEY:?}",
    "from transformers import hf_hub_download, hf_bucket_url",
    f"git checkout {made(40, '0123456789abcdef')}  # wandb",
    'tokenizer_config = {"pad_token": "[PAD]", "model_max_length": 512}',
    'api_key = os.environ["API_KEY"]',
    'api_key="YOUR_API_KEY_FROM_https_ngc_nvidia_com_setup1"',
    'secret_key = "' + "0" * 40 + '"',
    f"sha256:{made(64, '0123456789abcdef')}",
    "task-" + made(48, string.ascii_lowercase),
    "export AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY NGC_API_KEY=${NGC_API_KEY} DB_PASSWORD=<password>",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    f"aws_secret_access_key = {'x' * 40}",
    "curl -u user:password https://example.org; curl -u jane:$PASSWORD -u jane:${PW:?} -u USER:PASSWORD",
    "postgres://user:pw@host postgres://postgres:postgres@db http://user:Passw0rd@proxy:3128 a://b:changeme1@c",
    "https://oauth2:${TOKEN}@gitlab.com https://{user}:{password}@host s3://bucket:8080/a@b",
    "machine HOST login USER password <password>\nmachine learning login page password reset",
    "password=changeme1 password='xxxxxxxx1' password=os.environ['PW1'] password=PLACEHOLDER1 password=None",
    'def connect(user, password: str = "", passwd=DEFAULT): self.password = password',
    'password = "EXAMPLE123" password="hunter" PASSWORD_HASHERS = "md5_1"',
]


@pytest.mark.parametrize("text", NONE)
def test_what_looks_like_one_is_not(text):
    assert list(secrets(text.encode())) == []


@pytest.mark.parametrize("text", ["curl -u ", "password=", "password='", "://", "machine a login b ", "NGC_API_KEY="])
def test_the_time_is_linear(text):
    times = []
    for length in (1 << 15, 1 << 17):
        begin = time.process_time()
        list(secrets(text.encode() * (length // len(text)) + b"a" * length))
        times.append(time.process_time() - begin)
    assert times[1] < 8 * times[0] + 0.2


def test_the_suite_has_none():
    root = Path(__file__).parents[3]
    files = [path for folder in ("common", "compliance", "submission", "docs") for path in (root / folder).rglob("*.*")]
    assert not {str(path) for path in files if path.is_file() and list(secrets(path.read_bytes()))}
