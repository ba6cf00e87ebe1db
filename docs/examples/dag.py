"""Loads each day's orders with the Kubernetes Job of job.yaml and waits until they are live.

The run is named after the day. Whatever is tried again (this task, the pod, a cleared DAG run) goes on where the last try
stopped, and does nothing once the day is live. The worker needs synctl on its PATH and SYNCTL_TO in its environment, to ask
the database how the run stands: the Job alone cannot tell after its pod was evicted.
"""

import json
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path

import yaml
from airflow.decorators import dag, task
from airflow.exceptions import AirflowException, AirflowFailException
from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

NAMESPACE = "data"
TEMPLATE = Path(__file__).with_name("job.yaml")
POLL_SECONDS = 30


def state(run_id):
    """How the run stands: running, done, failed, interrupted or unknown; why; and its exit code."""
    asked = subprocess.run(
        ["synctl", "bulk", "status", "--run-id", run_id, "--output", "json"],
        capture_output=True,
        text=True,
    )
    if not asked.stdout:  # no answer: the database could not be reached
        raise AirflowException(asked.stderr)
    run = json.loads(asked.stdout)
    return run["state"], run.get("error"), run.get("exit_code")


def job(day, attempt):
    """The Job of job.yaml for another day. Airflow tries again, so the Job does not."""
    text = TEMPLATE.read_text()
    text = text.replace("20261130", day.replace("-", "")).replace("2026-11-30", day)
    body = yaml.safe_load(text)
    body["metadata"]["name"] += f"-{attempt}"
    body["spec"]["backoffLimit"] = 0
    return body


def load(day, attempt, jobs):
    """Starts the Job unless the run is under way or done, and returns when the day is live."""
    run_id = f"orders-{day}"
    name = None
    if state(run_id)[0] not in ("running", "done"):
        body = job(day, attempt)
        name = body["metadata"]["name"]
        jobs.create_namespaced_job(NAMESPACE, body)
    while True:
        time.sleep(POLL_SECONDS)
        ended = name is not None and jobs.read_namespaced_job_status(name, NAMESPACE).status.failed
        now, why, code = state(run_id)
        if now == "done":
            return code  # 5: some rows are in the dead-letter file
        if not ended and (now in ("running", "unknown") or name is not None):
            continue  # what the database says may still be of the try before
        if now == "failed" and code in (2, 4):
            raise AirflowFailException(why)  # the command line, or the data: no use in trying again
        raise AirflowException(why or f"run {run_id} is {now}, and its Job has failed")


@dag(
    schedule="15 2 * * *",
    start_date=datetime(2026, 11, 1),
    catchup=False,
    max_active_runs=1,
    default_args={
        "retries": 3,
        "retry_delay": timedelta(minutes=10),
        "execution_timeout": timedelta(hours=2),
    },
)
def orders():
    @task
    def load_day(ds=None, ti=None):
        return load(ds, ti.try_number, KubernetesHook().batch_v1_client)

    load_day()


orders()
