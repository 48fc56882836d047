"""The minimal nominator, the peer that any dispatcher must be measured against: one random cluster, nothing else.

`python -m bench.dispatch_nominator FLEET_DIRECTORY`. It has no restart, no retry, no reason and no idea of capacity.
"""

import json
import random
import sys
from pathlib import Path

from bench.dispatch_fleet import WORKERS, WORKLOADS
from bench.dispatch_observer import client_of, states_of
from tests.fleet import LocalFleet

MERGE = {"Content-Type": "application/merge-patch+json"}


def main() -> None:
    hub = LocalFleet.attach(Path(sys.argv[1])).hub
    with client_of(hub) as client, client_of(hub) as watch:
        version = client.get(WORKLOADS).json()["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": version}
        with watch.stream("GET", WORKLOADS, params=query, timeout=None) as stream:
            print("ready", flush=True)
            for line in stream.iter_lines():
                workload = json.loads(line)["object"]
                states = states_of(workload)
                if {"quotareserved", "pending"} <= states and not states & {"nominated", "placed", "finished"}:
                    path = f"{WORKLOADS}/{workload['metadata']['name']}/status?fieldManager=minimal"
                    guard = {"resourceVersion": workload["metadata"]["resourceVersion"]}
                    patch = {"metadata": guard, "status": {"nominatedClusterNames": [random.choice(WORKERS)]}}
                    client.patch(path, content=json.dumps(patch), headers=MERGE)


if __name__ == "__main__":
    main()
