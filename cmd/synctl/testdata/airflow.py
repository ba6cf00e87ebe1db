"""Runs the task of docs/examples/dag.py with stand-ins for Airflow and for Kubernetes: airflow.py EXAMPLES DATA DAY."""

import subprocess
import sys
import types

examples, data, day = sys.argv[1:]


class Retry(Exception):
    pass


class Give(Exception):
    pass


def decorator(*args, **kwargs):
    if len(args) == 1 and callable(args[0]) and not kwargs:
        return args[0]
    return lambda f: f


def module(name, **members):
    m = types.ModuleType(name)
    m.__dict__.update(members)
    sys.modules[name] = m


tasks = []


def task(f):
    tasks.append(f)
    return lambda: None


for name in ("airflow", "airflow.providers", "airflow.providers.cncf", "airflow.providers.cncf.kubernetes", "airflow.providers.cncf.kubernetes.hooks"):
    module(name)
module("airflow.decorators", dag=decorator, task=task)
module("airflow.exceptions", AirflowException=Retry, AirflowFailException=Give)
module("airflow.providers.cncf.kubernetes.hooks.kubernetes", KubernetesHook=object)
sys.path.insert(0, examples)
import dag

dag.POLL_SECONDS = 0.05
assert len(tasks) == 1, tasks


class Jobs:
    """The calls of BatchV1Api that the DAG makes; a Job's pod is a process."""

    def __init__(self):
        self.pods, self.kill, self.extra = {}, False, []

    def create_namespaced_job(self, namespace, body):
        assert body["kind"] == "Job" and body["metadata"]["name"] not in self.pods
        command = [a.replace("/data/", data + "/") for a in body["spec"]["template"]["spec"]["containers"][0]["command"]]
        pod = subprocess.Popen(command + self.extra, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.pods[body["metadata"]["name"]] = pod
        if self.kill:
            pod.kill()

    def read_namespaced_job_status(self, name, namespace):
        code = self.pods[name].poll()
        failed = 1 if code not in (None, 0) else None
        return types.SimpleNamespace(status=types.SimpleNamespace(failed=failed))


jobs = Jobs()
jobs.kill = True
try:
    dag.load(day, 1, jobs)
    sys.exit("a Job that was killed counted as done")
except Retry as e:
    print("killed:", e)
jobs.kill, jobs.extra = False, ["--check", "SELECT false"]
try:
    dag.load(day, 2, jobs)
    sys.exit("data that a check refused counted as done")
except Give as e:
    print("refused:", e)
jobs.extra = []
assert dag.load(day, 3, jobs) == 0
assert dag.load(day, 4, jobs) == 0
assert len(jobs.pods) == 3, jobs.pods
print("live:", sorted(jobs.pods))
