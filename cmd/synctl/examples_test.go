package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"go.yaml.in/yaml/v3"

	"synctl/internal/testkit"
)

const examples = "../../docs/examples/"

// exampleShop is what the examples in docs/examples run against: the table, and a day's data below dir/<day>.
func exampleShop(t *testing.T, dir, day string) (dsn string) {
	t.Helper()
	dsn = testkit.Shared(t).Database(t)
	testkit.Exec(t, testkit.Connect(t, dsn), `CREATE TABLE orders (day date NOT NULL, id bigint NOT NULL, PRIMARY KEY (day, id)) PARTITION BY LIST (day)`)
	if err := os.MkdirAll(filepath.Join(dir, day), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, day, "part-0.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "day", Type: arrow.FixedWidthTypes.Date32}, {Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil)
	w, err := pqarrow.NewFileWriter(schema, f, nil, pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.DateOnly, day)
	if err != nil {
		t.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range 1500 {
		rb.Field(0).(*array.Date32Builder).Append(arrow.Date32FromTime(at))
		rb.Field(1).(*array.Int64Builder).Append(int64(i))
	}
	if err := w.Write(rb.NewRecordBatch()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dsn
}

func readExample(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(examples + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// strict decodes YAML into v; a field that v does not know is an error, as it is where the file is meant for.
func strict(t *testing.T, text string, v any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil {
		t.Fatal(err)
	}
}

// runExample runs a command of an example and fails unless it ends with 0.
func runExample(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}

func wantLive(t *testing.T, dsn, day string) {
	t.Helper()
	partition := "orders_" + strings.ReplaceAll(day, "-", "")
	if got := answer(t, testkit.Connect(t, dsn), fmt.Sprintf(`SELECT concat_ws(' ', count(*), min(tableoid::regclass::text)) FROM orders WHERE day = '%s'`, day)); got != "1500 "+partition {
		t.Errorf("live: %s, want 1500 rows in %s", got, partition)
	}
}

// The line of cron: five fields, and a command that does what it says, twice.
func TestExampleCrontab(t *testing.T) {
	text := readExample(t, "crontab")
	var line string
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "#") || regexp.MustCompile(`^[A-Z_]+ ?=`).MatchString(l) {
			continue
		}
		if line != "" {
			t.Fatalf("more than one entry: %s", l)
		}
		line = l
	}
	if !strings.Contains(readExample(t, "../schedule.md"), "\n"+line+"\n") {
		t.Error("docs/schedule.md shows another line")
	}
	fields := strings.Fields(line)
	for i, most := range []int{59, 23, 31, 12, 7} {
		for part := range strings.SplitSeq(fields[i], ",") {
			if err := cronField(part, most); err != nil {
				t.Errorf("field %d: %v", i+1, err)
			}
		}
	}
	_, command, _ := strings.Cut(line, fields[4]+"  ")
	if i := strings.Index(strings.ReplaceAll(command, `\%`, ""), "%"); i >= 0 {
		t.Errorf("a bare %% ends the command for cron: %s", command)
	}
	day := time.Now().Format(time.DateOnly)
	dir := t.TempDir()
	dsn := exampleShop(t, dir, day)
	command = strings.ReplaceAll(strings.ReplaceAll(command, `\%`, "%"), "/data/orders/", dir+"/")
	for range 2 {
		if out := runExample(t, dir, []string{"SYNCTL_TO=" + dsn}, "/bin/sh", "-c", command); out != "" {
			t.Errorf("cron would mail %s", out)
		}
	}
	wantLive(t, dsn, day)
}

func cronField(part string, most int) error {
	if part == "*" {
		return nil
	}
	low, high, ranged := strings.Cut(part, "-")
	if !ranged {
		high = low
	}
	from, err1 := strconv.Atoi(low)
	to, err2 := strconv.Atoi(high)
	if err1 != nil || err2 != nil || from > to || to > most {
		return fmt.Errorf("%q is not within 0-%d", part, most)
	}
	return nil
}

// workflow is as much of GitHub's workflow syntax as the example uses.
type workflow struct {
	Name string `yaml:"name"`
	On   struct {
		Schedule []struct {
			Cron string `yaml:"cron"`
		} `yaml:"schedule"`
		Dispatch struct {
			Inputs map[string]struct {
				Description string `yaml:"description"`
				Required    bool   `yaml:"required"`
				Type        string `yaml:"type"`
			} `yaml:"inputs"`
		} `yaml:"workflow_dispatch"`
	} `yaml:"on"`
	Concurrency struct {
		Group  string `yaml:"group"`
		Cancel bool   `yaml:"cancel-in-progress"`
	} `yaml:"concurrency"`
	Jobs map[string]struct {
		RunsOn      string            `yaml:"runs-on"`
		Timeout     int               `yaml:"timeout-minutes"`
		Permissions map[string]string `yaml:"permissions"`
		Env         map[string]string `yaml:"env"`
		Steps       []struct {
			Name string            `yaml:"name"`
			Uses string            `yaml:"uses"`
			With map[string]string `yaml:"with"`
			If   string            `yaml:"if"`
			Run  string            `yaml:"run"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

// The workflow: its fields, and its steps run one after the other as a runner does.
func TestExampleGitHubActions(t *testing.T) {
	var w workflow
	strict(t, readExample(t, "github-actions.yaml"), &w)
	if w.Name == "" || len(w.On.Schedule) != 1 || len(strings.Fields(w.On.Schedule[0].Cron)) != 5 || len(w.Jobs) != 1 {
		t.Fatalf("no workflow: %+v", w)
	}
	job := w.Jobs["load"]
	if job.RunsOn == "" || job.Env["SYNCTL_TO"] == "" || len(job.Steps) < 4 {
		t.Fatalf("no job: %+v", job)
	}
	const day = "2026-11-30"
	dir := t.TempDir()
	dsn := exampleShop(t, filepath.Join(dir, "data"), day)
	environment := filepath.Join(dir, "github-env")
	ran := 0
	for _, step := range job.Steps {
		if (step.Uses == "") == (step.Run == "") {
			t.Errorf("step %q needs one of uses and run", step.Name)
		}
		if !strings.Contains(step.Run, "synctl bulk") {
			continue
		}
		ran++
		out := runExample(t, dir, []string{"SYNCTL_TO=" + dsn, "DAY=" + day, "GITHUB_ENV=" + environment}, "bash", "-e", "-c", step.Run)
		if step.If != "" && !strings.Contains(out, `"state":"done"`) {
			t.Errorf("status: %s", out)
		}
	}
	if set, err := os.ReadFile(environment); ran != 3 || err != nil || string(set) != "DAY="+day+"\n" {
		t.Errorf("%d steps ran, environment %q %v", ran, set, err)
	}
	wantLive(t, dsn, day)
}

// kubernetesJob is as much of batch/v1 Job as the example uses.
type kubernetesJob struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec struct {
		BackoffLimit int `yaml:"backoffLimit"`
		Deadline     int `yaml:"activeDeadlineSeconds"`
		TTL          int `yaml:"ttlSecondsAfterFinished"`
		Failure      struct {
			Rules []struct {
				Action string `yaml:"action"`
				Codes  struct {
					Container string `yaml:"containerName"`
					Operator  string `yaml:"operator"`
					Values    []int  `yaml:"values"`
				} `yaml:"onExitCodes"`
			} `yaml:"rules"`
		} `yaml:"podFailurePolicy"`
		Template struct {
			Spec podSpec `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type podSpec struct {
	Restart    string           `yaml:"restartPolicy"`
	Grace      int              `yaml:"terminationGracePeriodSeconds"`
	Security   podSecurity      `yaml:"securityContext"`
	Containers []containerSpec  `yaml:"containers"`
	Volumes    []map[string]any `yaml:"volumes"`
}

type podSecurity struct {
	NonRoot bool `yaml:"runAsNonRoot"`
	User    int  `yaml:"runAsUser"`
}

type containerSpec struct {
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Env     []struct {
		Name string `yaml:"name"`
		From struct {
			Secret struct {
				Name string `yaml:"name"`
				Key  string `yaml:"key"`
			} `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
	Resources struct {
		Requests, Limits map[string]string
	} `yaml:"resources"`
	Security struct {
		Escalation   bool                `yaml:"allowPrivilegeEscalation"`
		ReadOnly     bool                `yaml:"readOnlyRootFilesystem"`
		Capabilities map[string][]string `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name     string `yaml:"name"`
		Path     string `yaml:"mountPath"`
		ReadOnly bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

// The Job: its fields, and its command, run twice.
func TestExampleKubernetesJob(t *testing.T) {
	var job kubernetesJob
	strict(t, readExample(t, "job.yaml"), &job)
	pod := job.Spec.Template.Spec
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || pod.Restart != "Never" || len(pod.Containers) != 1 {
		t.Fatalf("no Job: %+v", job)
	}
	c := pod.Containers[0]
	if !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(job.Metadata.Name) || len(c.Env) != 1 || c.Env[0].Name != "SYNCTL_TO" || c.Env[0].From.Secret.Name == "" {
		t.Errorf("name %q, environment %+v", job.Metadata.Name, c.Env)
	}
	for _, rule := range job.Spec.Failure.Rules { // the API server refuses such a policy with any other restartPolicy
		if rule.Codes.Container != c.Name || rule.Action != "FailJob" || rule.Codes.Operator != "In" {
			t.Errorf("rule %+v", rule)
		}
	}
	if len(c.Mounts) != 1 || len(pod.Volumes) != 1 || pod.Volumes[0]["name"] != c.Mounts[0].Name {
		t.Errorf("mounts %+v of volumes %+v", c.Mounts, pod.Volumes)
	}
	const day = "2026-11-30"
	dir := t.TempDir()
	dsn := exampleShop(t, dir, day)
	args := make([]string, len(c.Command))
	for i, a := range c.Command {
		args[i] = strings.ReplaceAll(a, c.Mounts[0].Path+"/", dir+"/")
	}
	runExample(t, dir, []string{"SYNCTL_TO=" + dsn}, args[0], args[1:]...)
	if out := runExample(t, dir, []string{"SYNCTL_TO=" + dsn}, args[0], args[1:]...); !strings.Contains(out, `"already_done":true`) {
		t.Errorf("once more: %s", out)
	}
	wantLive(t, dsn, day)
}

// The DAG: it compiles, and its task, with stand-ins for Airflow and Kubernetes, brings a day live, is tried again after a
// pod that was killed, does nothing for a day that is live, and gives up for good on data that a check refuses.
func TestExampleAirflow(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	const day = "2026-11-29"
	dir := t.TempDir()
	dsn := exampleShop(t, dir, day)
	source, err := filepath.Abs(examples)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"SYNCTL_TO=" + dsn, "PYTHONPYCACHEPREFIX=" + dir}
	runExample(t, dir, env, python, "-m", "py_compile", filepath.Join(source, "dag.py"))
	if err := exec.Command(python, "-c", "import yaml").Run(); err != nil {
		t.Skip("python3 has no yaml: compiled only")
	}
	stand, err := filepath.Abs("testdata/airflow.py")
	if err != nil {
		t.Fatal(err)
	}
	out := runExample(t, dir, env, python, stand, source, dir, day)
	t.Log(out)
	wantLive(t, dsn, day)
}
