package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"synctl/internal/fault"
)

func TestMetricsServer(t *testing.T) {
	var out lockedBuffer
	app := New(IO{Err: &out, Getenv: func(string) string { return "" }}, nil)
	app.progress.Value = "none"
	r := &Run{IO: app.IO, Log: app.logger(), app: app, live: &LiveFlags{MetricsAddr: "127.0.0.1:0"}}
	var now atomic.Pointer[Snapshot]
	now.Store(&Snapshot{Records: 12, InFlight: 3})
	stop, err := r.Report(func() Snapshot { return *now.Load() })
	if err != nil {
		t.Fatal(err)
	}
	addr := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(out.String())
	if addr == nil {
		t.Fatalf("the log does not tell the address: %s", out.String())
	}
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + addr[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}

	_, body := get("/metrics")
	if !strings.Contains(body, "\nsynctl_records_total 12\n") || !strings.Contains(body, "\nsynctl_in_flight_records 3\n") || !strings.Contains(body, "\ngo_goroutines ") {
		t.Errorf("metrics:\n%s", body)
	}
	if strings.Contains(body, "synctl_lag_") {
		t.Error("a lag that is not known is told as a figure")
	}
	if code, _ := get("/readyz"); code != 503 {
		t.Errorf("/readyz before it is ready: %d", code)
	}
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}

	now.Store(&Snapshot{Ready: true, Lag: &Lag{Bytes: 0, Age: 1500 * time.Millisecond}})
	_, body = get("/metrics")
	if !strings.Contains(body, "\nsynctl_lag_bytes 0\n") || !strings.Contains(body, "\nsynctl_lag_seconds 1.5\n") {
		t.Errorf("metrics:\n%s", body)
	}
	if code, _ := get("/readyz"); code != 200 {
		t.Errorf("/readyz when ready: %d", code)
	}

	now.Store(&Snapshot{Ready: true, Trouble: "no progress for 5m to postgres://u:s3cr3t@h/d"})
	if code, body := get("/healthz"); code != 503 || !strings.Contains(body, "no progress for 5m") || strings.Contains(body, secret) {
		t.Errorf("/healthz in trouble: %d %s", code, body)
	}

	stop()
	if conn, err := net.Dial("tcp", addr[1]); err == nil {
		conn.Close()
		t.Error("the server still listens after stop")
	}
}

func TestMetricsAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	app := New(IO{Err: &bytes.Buffer{}}, nil)
	r := &Run{IO: app.IO, Log: app.logger(), app: app, live: &LiveFlags{MetricsAddr: l.Addr().String()}}
	if _, err := r.Report(func() Snapshot { return Snapshot{} }); err == nil || fault.HintOf(err) == "" {
		t.Errorf("error is %v with hint %q", err, fault.HintOf(err))
	}
}
