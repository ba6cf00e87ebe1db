package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// KinesisLocal starts kinesis-local, an emulator of Kinesis from npm that is not ours, on the loopback address, and
// gives its endpoint. It ends with the test. The test fails where the emulator was installed and does not start, and is
// skipped where it was not installed, unless SYNCTL_TEST_KINESIS_LOCAL=require says that it must have been.
//
// It is looked for in KINESIS_LOCAL_DIR, a directory with node_modules in it, else in scripts/kinesis-local.
func KinesisLocal(t testing.TB) string {
	t.Helper()
	dir, main, err := findKinesisLocal()
	if err != nil {
		if os.Getenv("SYNCTL_TEST_KINESIS_LOCAL") == "require" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	plain, tls, err := twoPorts()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Dir(main)
	cmd := exec.Command("node", "--require", filepath.Join(dir, "loopback.cjs"), main)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "KINESIS_MOCK_CERT_PATH="+filepath.Join(modules, "server.json"),
		fmt.Sprint("KINESIS_MOCK_TLS_PORT=", tls), fmt.Sprint("KINESIS_MOCK_PLAIN_PORT=", plain), "SHARD_LIMIT=1000", "LOG_LEVEL=ERROR")
	for _, op := range []string{"CREATE_STREAM", "DELETE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS"} {
		cmd.Env = append(cmd.Env, op+"_DURATION=5ms")
	}
	out := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatalf("start kinesis-local: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed, or its output says why it ended
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	url := fmt.Sprint("http://127.0.0.1:", plain)
	if err := awaitHTTP(url, exited); err != nil {
		t.Fatalf("kinesis-local on %s: %v\n%s", url, err, out)
	}
	return url
}

func findKinesisLocal() (dir, main string, err error) {
	_, here, _, _ := runtime.Caller(0)
	scripts := filepath.Join(filepath.Dir(here), "..", "..", "scripts", "kinesis-local")
	dir = os.Getenv("KINESIS_LOCAL_DIR")
	if dir == "" {
		dir = scripts
	}
	main = filepath.Join(dir, "node_modules", "kinesis-local", "main.js")
	if _, err := os.Stat(main); err != nil {
		return "", "", fmt.Errorf("kinesis-local is not installed in %s: run `make setup`, or set KINESIS_LOCAL_DIR", filepath.Clean(dir))
	}
	if _, err := exec.LookPath("node"); err != nil {
		return "", "", errors.New("there is no Node.js to run kinesis-local with")
	}
	if _, err := os.Stat(filepath.Join(dir, "loopback.cjs")); err != nil {
		dir = scripts // the directory was made by npm alone
	}
	return dir, main, nil
}

// twoPorts finds two that are free now.
func twoPorts() (int, int, error) {
	var ports [2]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, 0, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports[0], ports[1], nil
}

func awaitHTTP(url string, exited <-chan struct{}) error {
	client := http.Client{Timeout: time.Second}
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		resp, err := client.Post(url, "application/x-amz-json-1.1", strings.NewReader("{}"))
		if err == nil {
			return resp.Body.Close()
		}
		select {
		case <-exited:
			return errors.New("it ended")
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errors.New("no answer within a minute")
}

// lockedBuffer keeps what a process says.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
