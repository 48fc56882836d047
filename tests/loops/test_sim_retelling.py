"""Who would be told to wait again is not decided on again: fewer decisions, the same log, to the byte."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.core.memo import Anew
from dispatcher.core.workload import Request
from dispatcher.sim.contenders import Arena
from dispatcher.sim.contenders_entrepot import Entrepot
from dispatcher.sim.contenders_memo import PatientMemo
from dispatcher.sim.engine import Finished, run
from dispatcher.sim.scenarios import blueprint_folder, named_scenario, plan_named
from dispatcher.sim.world import Setup, set_up, start_of

JOBS = 150


@dataclass(slots=True)
class Impatient(PatientMemo):
    """Decides on everybody whose candidates are no longer the same."""

    def weighed_anew(self, request: Request) -> Anew | None:
        return None


def first_jobs(scenario: str) -> Setup:
    whole = named_scenario(scenario, 1, start_of(blueprint_folder(plan_named(scenario).blueprint)))
    return set_up(replace(whole, jobs=whole.jobs[:JOBS]))


def impatient(arena: Arena) -> Entrepot:
    contender = Entrepot(arena)
    contender.loop.planner.memo = Impatient()
    return contender


def entrepot(found: Finished) -> Entrepot:
    assert isinstance(found.contender, Entrepot)
    return found.contender


def test_those_who_wait_are_told_again_without_a_decision_and_nothing_on_record_is_another() -> None:
    setup = first_jobs("overload-1.6")
    patient, all_decided = run(setup, Entrepot), run(setup, impatient)

    assert entrepot(patient).store.log == entrepot(all_decided).store.log
    assert patient.outcomes == all_decided.outcomes
    assert entrepot(patient).decided * 3 < entrepot(all_decided).decided * 2
