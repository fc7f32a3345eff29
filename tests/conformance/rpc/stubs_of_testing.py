"""Python stubs of grpc.testing, health and reflection from Debian's grpc-proto, in the folder that
BERTH_INTEROP_STUBS names (interop.py makes it)."""
import os
import shutil
import subprocess
import sys

GRPC_PROTO = "/usr/share/grpc-proto"
PROTOS = ["grpc/testing/empty.proto", "grpc/testing/messages.proto", "grpc/testing/test.proto",
          "grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto"]


def generate(folder):
    subprocess.run(["protoc", "-I" + GRPC_PROTO, "--python_out=" + folder, "--grpc_python_out=" + folder,
                    "--plugin=protoc-gen-grpc_python=" + shutil.which("grpc_python_plugin"), *PROTOS], check=True)


def join():
    """The generated grpc/ folder joins the installed package."""
    folder = os.environ["BERTH_INTEROP_STUBS"]
    sys.path.insert(0, folder)
    import grpc
    grpc.__path__.insert(0, os.path.join(folder, "grpc"))
