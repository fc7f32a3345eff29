#!/usr/bin/python3
"""t0510-dev-ca - deploy/dev-ca: what it makes, keeps, renews and refuses. Needs no root and no build."""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import tap  # noqa: E402

DEV_CA = os.path.join(HERE, "..", "..", "deploy", "dev-ca")
SERVICES = ["controlplane", "dataplane", "skills", "binding", "reaper", "adapter-local", "gateway"]
PAIRS = SERVICES + ["client"]


class Folder:
    """An empty folder for each case."""

    def __enter__(self):
        self.top = tempfile.mkdtemp(prefix="berth-dev-ca-")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.top)

    def new(self):
        return os.path.join(tempfile.mkdtemp(dir=self.top), "tls")


def dev_ca(folder, *words):
    done = subprocess.run([DEV_CA, "--dir", folder, *words], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def made(folder, *words):
    code, text = dev_ca(folder, *words)
    tap.equal(code, 0, text)
    return text


def openssl(*words):
    return subprocess.run(["openssl", *words], capture_output=True, text=True, timeout=60, check=False)


def contents(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}


def text_of(folder, name):
    return openssl("x509", "-in", f"{folder}/{name}.pem", "-noout", "-text").stdout


# One authority and a pair for everybody, all files for their owner alone, and nothing else.
def dev_ca__empty_folder__authority_and_pairs(folders):
    folder = folders.new()
    made(folder)
    names = {f"{name}.{end}" for name in PAIRS + ["ca"] for end in ("pem", "key")} | {".lock"}
    tap.equal(set(os.listdir(folder)), names)
    tap.equal(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
    for name in names:
        tap.equal(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600, name)


# Services' certificates are good for both ends, the client's for one; the names are as promised.
def dev_ca__certificates__good_for_what_they_say(folders):
    folder = folders.new()
    made(folder, "--host", "node1.example", "--host", "192.0.2.7", "--host", "fd00::7", "--days", "30")
    for name in SERVICES:
        for purpose in ("sslserver", "sslclient"):
            done = openssl("verify", "-purpose", purpose, "-x509_strict", "-CAfile", f"{folder}/ca.pem",
                           f"{folder}/{name}.pem")
            tap.equal(done.returncode, 0, done.stderr)
        text = text_of(folder, name)
        for san in (f"URI:spiffe://berth/{name}", f"DNS:{name},", f"DNS:berth-{name}", "DNS:localhost",
                    "IP Address:127.0.0.1", "IP Address:0:0:0:0:0:0:0:1", "DNS:node1.example", "IP Address:192.0.2.7",
                    "IP Address:FD00:0:0:0:0:0:0:7"):
            tap.check(san in text, name, "lacks", san, text)
    tap.equal(openssl("verify", "-purpose", "sslclient", "-CAfile", f"{folder}/ca.pem", f"{folder}/client.pem").returncode, 0)
    tap.check(openssl("verify", "-purpose", "sslserver", "-CAfile", f"{folder}/ca.pem",
                      f"{folder}/client.pem").returncode != 0, "a client's certificate serves")
    tap.check("DNS:" not in text_of(folder, "client"), text_of(folder, "client"))
    tap.equal(openssl("x509", "-in", f"{folder}/client.pem", "-noout", "-checkend", str(29 * 86400)).returncode, 0)
    tap.check(openssl("x509", "-in", f"{folder}/client.pem", "-noout", "-checkend", str(31 * 86400)).returncode != 0, "--days")


# No certificate of it can be an authority itself.
def dev_ca__authority__signs_no_other_authority(folders):
    folder = folders.new()
    made(folder)
    tap.check("CA:TRUE, pathlen:0" in text_of(folder, "ca"), text_of(folder, "ca"))
    for name in PAIRS:
        tap.check("CA:FALSE" in text_of(folder, name), name)


# A second run changes no byte; it makes what is missing and leaves the rest.
def dev_ca__second_run__only_what_is_missing(folders):
    folder = folders.new()
    made(folder)
    before = contents(folder)
    made(folder)
    tap.equal(contents(folder), before)
    os.unlink(f"{folder}/skills.key")
    made(folder)
    after = contents(folder)
    tap.equal({name for name in before if before[name] != after[name]}, {"skills.key", "skills.pem"})


# --renew makes every certificate with a new key, and leaves the authority alone.
def dev_ca__renew__all_but_the_authority(folders):
    folder = folders.new()
    made(folder)
    before = contents(folder)
    made(folder, "--renew")
    after = contents(folder)
    same = {name for name in before if before[name] == after[name]}
    tap.equal(same, {"ca.pem", "ca.key", ".lock"})
    tap.equal(openssl("verify", "-CAfile", f"{folder}/ca.pem", f"{folder}/binding.pem").returncode, 0)


# An authority is never overwritten, not even half of one, and nothing changes where it is refused.
def dev_ca__authority_not_whole__refused(folders):
    def without_key(folder):
        os.unlink(f"{folder}/ca.key")

    def without_certificate(folder):
        os.unlink(f"{folder}/ca.pem")

    def empty_key(folder):
        open(f"{folder}/ca.key", "w").close()

    def other_key(folder):
        shutil.copy(f"{folder}/client.key", f"{folder}/ca.key")

    for harm in (without_key, without_certificate, empty_key, other_key):
        folder = folders.new()
        made(folder)
        harm(folder)
        before = contents(folder)
        for words in ((), ("--renew",)):
            code, text = dev_ca(folder, *words)
            tap.equal(code, 1, harm.__name__, text)
            tap.check("never overwritten" in text, text)
            tap.equal(contents(folder), before)


# A pair of another authority is not kept in silence, nor replaced without being asked.
def dev_ca__pair_of_another_authority__told(folders):
    folder, other = folders.new(), folders.new()
    made(folder)
    made(other)
    for end in ("pem", "key"):
        shutil.copy(f"{other}/binding.{end}", f"{folder}/binding.{end}")
    before = contents(folder)
    code, text = dev_ca(folder)
    tap.equal(code, 1, text)
    tap.check("binding.pem and binding.key are no pair" in text and "--renew" in text, text)
    tap.equal(contents(folder), before)
    made(folder, "--renew")
    tap.equal(openssl("verify", "-CAfile", f"{folder}/ca.pem", f"{folder}/binding.pem").returncode, 0)


# Two at once make one authority, and every pair is whole.
def dev_ca__two_at_once__one_authority(folders):
    folder = folders.new()
    runs = [subprocess.Popen([DEV_CA, "--dir", folder], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for _ in range(3)]
    for run in runs:
        _, text = run.communicate(timeout=120)
        tap.equal(run.returncode, 0, text)
    made(folder)
    for name in PAIRS:
        tap.equal(openssl("verify", "-CAfile", f"{folder}/ca.pem", f"{folder}/{name}.pem").returncode, 0, name)


# What it prints can be given to a service as it stands.
def dev_ca__settings__name_every_service(folders):
    folder = folders.new()
    text = made(folder)
    tap.check(f"--tls_ca={folder}/ca.pem" in text, text)
    sans = re.search(r"--peer_sans=(\S+)", text).group(1)
    tap.equal(sans.split(","), [f"spiffe://berth/{name}" for name in SERVICES])


# A folder that was there keeps its mode; a word that is no option changes nothing.
def dev_ca__words__judged(folders):
    folder = folders.new()
    os.mkdir(folder, 0o755)
    made(folder)
    tap.equal(stat.S_IMODE(os.stat(folder).st_mode), 0o755)
    for words in (["--days", "0"], ["--days", "x"], ["--days", "10000"], ["--days"], ["--host", "a b"], ["--host", ""],
                  ["--host", "a,URI:spiffe://berth/binding"], ["--force"], ["extra"]):
        code, text = dev_ca(folder + "-other", *words)
        tap.equal(code, 1, words, text)
        tap.check("dev-ca: " in text, text)
    tap.check(not os.path.exists(folder + "-other"), "a folder was made")
    code, text = dev_ca(folder, "--help")
    tap.equal(code, 0, text)
    for word in ("--dir", "--host", "--days", "--renew", "never overwritten"):
        tap.check(word in text, word)


if __name__ == "__main__":
    tap.main(globals(), Folder)
