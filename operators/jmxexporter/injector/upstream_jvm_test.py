"""Comparison with the JMX exporter in the same JVM: same beans and configuration, line by line."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.common.testing.ports import find_free_port
from operators.jmxexporter.injector.attach import Attachment
from operators.jmxexporter.injector.messages import State
from operators.jmxexporter.injector.processes import Process
from operators.jmxexporter.jvms import Jvm
from operators.jmxexporter.presets import PRESETS

type Start = Callable[..., Jvm]
TOPICS = r"""
startDelaySeconds: 0
lowercaseOutputName: true
lowercaseOutputLabelNames: true
ssl: false
unknownKey: 1
rules:
- pattern: zoo<type=(Topic), name=(.+)-total, topic=(.+), partition=(.+)><>(\w+)_total
  name: zoo_$1_$2_$5_total
  type: COUNTER
  help: "$2 of a topic"
  labels: {Topic: "$3", partition: "$4"}
- pattern: zoo<type=(\w+)><>(\w+)
  name: zoo_$1_$2
  type: GAUGE
  valueFactor: 0.001
"""
CONFIGS = {
    "empty": "",
    "all": "rules:\n- pattern: .*\n",
    "lowercase": "lowercaseOutputName: true\nlowercaseOutputLabelNames: true\n",
    "counters": "inferCounterTypeFromName: true\nexcludeJvmMetrics: true\n",
    "snake case": "rules:\n- pattern: zoo\n  attrNameSnakeCase: true\n",
    "cache": "rules:\n- pattern: zoo<type=(\\w+)><>(\\w+)\n  name: zoo_$1_$2\n  cache: true\n",
    "value": "rules:\n- pattern: 'zoo<type=Plain><>Text: (.*)'\n  name: t\n  value: $1\n",
    "included": "includeObjectNames: ['zoo:*']\nexcludeObjectNames: ['zoo:type=Same,*']\n",
    "former names": "whitelistObjectNames: ['zoo:*']\nblacklistObjectNames: ['zoo:type=Same,*']\n",
    "attributes": "excludeObjectNameAttributes: {'zoo:type=Plain': [Huge, Yes]}\n",
    "customizers": (
        "metricCustomizers:\n- mbeanFilter: {domain: zoo, properties: {type: Kept}}\n"
        "  attributesAsLabels: [Text]\n"
        "  extraMetrics: [{name: kept, value: 1, description: always one}]\n"
    ),
    "topics": TOPICS,
    "groups": (
        "rules:\n- pattern: 'zoo<type=(\\w+?)(?<last>\\w)(Q)?(?:,.*)?><>(\\w+)'\n"
        "  name: zoo_$1$2_$4\n"
        "  labels: {absent: a$3b, escaped: '\\$1', digits: $42, named: '${last}', text: constant}\n"
    ),
    **{f"preset {name}": rules for name, rules in PRESETS.items()},
}
DIFFERENT = re.compile(
    r"jmx_exporter_build|jmx_guard_config|lastgcinfo|jvm_memory_pool_allocated", re.IGNORECASE
)
"""Metrics that differ: the name of the exporter, what the guard adds about itself, and metrics that
appear with the first garbage collection."""
CHANGING = re.compile(r"(process_|jvm_|jmx_|java_|jdk_|com_sun_|JMImplementation)", re.IGNORECASE)
"""Metrics whose value is another one at each scrape."""
FORMATS = {
    "text": "text/plain;version=0.0.4",
    "openmetrics": "application/openmetrics-text;version=1.0.0",
}


def read(port: int, accept: str) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = response.read().decode()
        return text


def normalize(text: str) -> list[str]:
    """Return the lines that must be the same, without the values that change."""
    lines = [line for line in text.splitlines() if not DIFFERENT.search(line)]
    return sorted(line.rpartition(" ")[0] if CHANGING.match(line) else line for line in lines)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_metrics_are_those_of_the_jmx_exporter(
    start_jvm: Start, jvm_kit: Path, tmp_path: Path, config: str
) -> None:
    jvm, port, file = start_jvm("-Dshop.zoo=true"), find_free_port(), tmp_path / "config.yaml"
    file.write_text(config)
    report = jvm.inject_one(config=config, port=port)
    assert report.state is State.SERVING, report

    Attachment(Process(jvm.process.pid), 60).load(str(jvm_kit / "reference.jar"), str(file))

    for name, accept in FORMATS.items():
        expected = normalize((tmp_path / f"config.yaml.{name}").read_text())
        assert len(expected) > 10
        assert normalize(read(port, accept)) == expected
