import asyncio, json, subprocess, pytest
from tests.contract.local import local_fleet_with, KUEUE
from tests.contract.harness import *
from tests.conftest import local_fleet
pytestmark=pytest.mark.local
FIRST=CLUSTERS[0]
async def test_it(local_fleet):
    async with local_fleet_with(local_fleet, Bed("dump-1")) as fleet:
        scene=Scene(fleet)
        await scene.submitted(fleet.bed.job("train", gpus=8, duration="10m"))
        await scene.nominate("train", FIRST)
        await scene.until_copy("train", FIRST, lambda c: c.bound_pods == 1, "runs")
        await scene.latched("train", FIRST)
        await fleet.pass_time(3)
        await fleet.cut(FIRST)
        await scene.until("train", lambda w: w.evicted_at is not None, "ev", 70)
        await fleet.pass_time(3)
        await fleet.mend(FIRST)
        for i in range(14):
            await fleet.pass_time(2)
            def dump(api):
                w=api.request("GET",f"{KUEUE}/namespaces/dump-1/workloads")["items"]
                j=api.request("GET","/apis/batch/v1/namespaces/dump-1/jobs")["items"]
                return [(x["spec"].get("active"),[(c["type"],c["status"],c["reason"]) for c in x["status"].get("conditions",[])]) for x in w],[(x["spec"].get("suspend"),x["status"].get("active"),x["status"].get("startTime")) for x in j]
            print(i,"HUB",fleet._on(None,dump), scene.hub().clusters[FIRST].active)
            print(i,"WRK",fleet._on(FIRST,dump))
        log=local_fleet.log_path("hub-kueue").read_text().splitlines()
        print("\n".join(l[:600] for l in log if "dump-1" in l and ("rror" in l or "emote" in l))[-9000:])
