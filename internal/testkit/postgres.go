// Package testkit holds what tests need and the product does not: throwaway PostgreSQL clusters, a Kinesis endpoint
// with faults, conformance suites. Only tests import it.
package testkit

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Cluster is a PostgreSQL server of its own on a loopback port, with wal_level logical. Its superuser is "postgres",
// without a password.
type Cluster struct {
	Port    int
	Dir     string // data directory
	Bin     string // directory of the server's programs
	Version int    // major version

	settings map[string]string
	proc     *exec.Cmd
	exited   chan struct{}
	dbs      atomic.Int64
}

// Options change a cluster's settings; zero values mean the usual ones.
type Options struct {
	Settings map[string]string // postgresql.conf, over the test defaults
	Durable  bool              // fsync on, for tests that kill the server
}

// Main runs a package's tests and stops the cluster that Shared started. Use it as the body of TestMain.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do: it gives the exit code.
func Run(m interface{ Run() int }) int {
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.destroy()
	}
	return code
}

var shared struct {
	sync.Mutex
	cluster *Cluster
}

// Shared is the package's common cluster: started at the first call, stopped by Main. Tests take databases of their
// own with Database and leave the server's settings and its life alone.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		c, err := start(Options{})
		if err != nil {
			t.Fatalf("start PostgreSQL: %v", err)
		}
		shared.cluster = c
	}
	return shared.cluster
}

// Own is a cluster for one test alone: it may be stopped, killed and reconfigured.
func Own(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := start(o)
	if err != nil {
		t.Fatalf("start PostgreSQL: %v", err)
	}
	t.Cleanup(c.destroy)
	return c
}

// BinDir finds the server's programs: SYNCTL_TEST_PGBIN, else the newest of Debian's, else the PATH's.
func BinDir() (string, error) {
	if dir := os.Getenv("SYNCTL_TEST_PGBIN"); dir != "" {
		return dir, nil
	}
	best, bestMajor := "", 0
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	for _, dir := range dirs {
		major, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil && major > bestMajor {
			best, bestMajor = dir, major
		}
	}
	if best != "" {
		return best, nil
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil {
			return filepath.Dir(p), nil
		}
	}
	return "", fmt.Errorf("no PostgreSQL server found: run 'make setup', or set SYNCTL_TEST_PGBIN to the directory that holds initdb and postgres")
}

func start(o Options) (*Cluster, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "synctl-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: filepath.Join(root, "data"), Bin: bin, settings: map[string]string{
		"listen_addresses":           "127.0.0.1",
		"unix_socket_directories":    root,
		"wal_level":                  "logical",
		"max_wal_senders":            "40",
		"max_replication_slots":      "40",
		"max_connections":            "120",
		"max_prepared_transactions":  "10",
		"shared_buffers":             "128MB",
		"max_wal_size":               "4GB",
		"fsync":                      "off",
		"logging_collector":          "off",
		"log_min_messages":           "warning",
		"autovacuum_naptime":         "60s",
		"wal_sender_timeout":         "60s",
		"dynamic_shared_memory_type": "posix",
	}}
	if o.Durable {
		c.settings["fsync"] = "on"
	}
	for k, v := range o.Settings {
		c.settings[k] = v
	}
	if uid, gid, ok := serverUser(); ok {
		if err := os.Chown(root, uid, gid); err != nil {
			return nil, err
		}
	}
	if out, err := c.command("initdb", "-D", c.Dir, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %v\n%s", err, out)
	}
	out, err := c.command("postgres", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("postgres --version: %v", err)
	}
	if f := strings.Fields(string(out)); len(f) >= 3 {
		c.Version, _ = strconv.Atoi(strings.SplitN(f[2], ".", 2)[0])
	}
	if c.Port, err = FreePort(); err != nil {
		return nil, err
	}
	return c, c.Start()
}

// FreePort finds a loopback port that nobody listens on at the moment.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// serverUser is whom the server runs as when the tests run as root, which it refuses.
func serverUser() (uid, gid int, ok bool) {
	if os.Getuid() != 0 {
		return 0, 0, false
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
			return uid, gid, true
		}
	}
	return 65534, 65534, true
}

// GiveToServer makes a file the property of whom the server runs as.
func GiveToServer(path string) error {
	if uid, gid, ok := serverUser(); ok {
		return os.Chown(path, uid, gid)
	}
	return nil
}

func (c *Cluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.Bin, program), args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if uid, gid, ok := serverUser(); ok {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return cmd
}

// Start starts the server and waits until it answers.
func (c *Cluster) Start() error {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		// After kill -9 the backends go a moment later than the postmaster, and until then no new one starts.
		err := c.start()
		if err == nil || !strings.Contains(lastLines(err.Error(), 3), "pre-existing shared memory block") || time.Now().After(deadline) {
			return err
		}
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func (c *Cluster) start() error {
	log, err := os.OpenFile(c.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", c.Dir, "-p", strconv.Itoa(c.Port)}
	for k, v := range c.settings {
		args = append(args, "-c", k+"="+v)
	}
	cmd := c.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	// The server must not outlive a test process that was killed. The signal comes when the thread that started it ends,
	// so that thread is kept.
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	if err := <-started; err != nil {
		return err
	}
	c.proc, c.exited = cmd, make(chan struct{})
	go func(done chan struct{}) { cmd.Wait(); close(done) }(c.exited)
	deadline := time.Now().Add(60 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		conn, err := pgx.Connect(ctx, c.DSN("postgres"))
		cancel()
		if err == nil {
			conn.Close(context.Background())
			return nil
		}
		select {
		case <-c.exited:
			tail, _ := os.ReadFile(c.LogFile())
			return fmt.Errorf("server ended at once: %s", tail)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("server does not answer: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Stop stops the server: syscall.SIGTERM smart, SIGINT fast, SIGQUIT immediate (as a crash), SIGKILL.
func (c *Cluster) Stop(how syscall.Signal) {
	if c.proc == nil {
		return
	}
	_ = c.proc.Process.Signal(how)
	<-c.exited
	c.proc = nil
}

func (c *Cluster) destroy() {
	c.Stop(syscall.SIGQUIT)
	os.RemoveAll(filepath.Dir(c.Dir))
}

// LogFile is where the server writes its log.
func (c *Cluster) LogFile() string { return filepath.Join(filepath.Dir(c.Dir), "server.log") }

// DSN is the URL of one of the cluster's databases.
func (c *Cluster) DSN(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", c.Port, database)
}

// Database makes an empty database for one test and gives its URL. Its replication slots and it are dropped at the
// test's end.
func (c *Cluster) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%d", c.dbs.Add(1))
	c.exec(t, "postgres", "CREATE DATABASE "+name)
	t.Cleanup(func() {
		if c.proc == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, c.DSN("postgres"))
		if err != nil {
			return
		}
		defer conn.Close(ctx)
		for range 20 {
			_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active`, name)
			if err == nil {
				_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, name)
			}
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if _, err := conn.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Logf("drop database %s: %v", name, err)
		}
	})
	return c.DSN(name)
}

func (c *Cluster) exec(t testing.TB, database, sql string) {
	t.Helper()
	ctx := context.Background()
	conn := Connect(t, c.DSN(database))
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Connect opens a connection that is closed at the test's end.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Exec runs statements and fails the test when one fails.
func Exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
