package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// metrics are the figures of a Snapshot as Prometheus has them, read at each scrape.
type metrics struct {
	snapshot func() Snapshot
	descs    []metric
}

type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(Snapshot) (v float64, known bool)
}

func newMetrics(snapshot func() Snapshot) *metrics {
	m := &metrics{snapshot: snapshot}
	add := func(kind prometheus.ValueType, name, help string, value func(Snapshot) (float64, bool)) {
		m.descs = append(m.descs, metric{prometheus.NewDesc("synctl_"+name, help, nil, nil), kind, value})
	}
	count := func(name, help string, value func(Snapshot) int64) {
		add(prometheus.CounterValue, name, help, func(s Snapshot) (float64, bool) { return float64(value(s)), true })
	}
	count("records_total", "Records that the sink holds for good.", func(s Snapshot) int64 { return s.Records })
	count("bytes_total", "Bytes of those records.", func(s Snapshot) int64 { return s.Bytes })
	count("retries_total", "Requests or entries that were sent again.", func(s Snapshot) int64 { return s.Retries })
	count("throttled_total", "Entries that a stream refused for its rate.", func(s Snapshot) int64 { return s.Throttled })
	count("dead_letters_total", "Records that went to the dead-letter file.", func(s Snapshot) int64 { return s.DeadLetters })
	count("reconnects_total", "Connections that were lost and made again.", func(s Snapshot) int64 { return s.Reconnects })
	gauge := func(name, help string, value func(Snapshot) (float64, bool)) {
		add(prometheus.GaugeValue, name, help, value)
	}
	gauge("in_flight_records", "Records read and not yet held for good.", func(s Snapshot) (float64, bool) { return float64(s.InFlight), true })
	gauge("wal_held_bytes", "WAL that our replication slot holds back on the server.", func(s Snapshot) (float64, bool) { return float64(s.WALHeld), true })
	// An unknown lag is left out: 0 would say that all is well.
	gauge("lag_bytes", "Bytes that we are behind the source.", func(s Snapshot) (float64, bool) {
		return lagOf(s).value(float64(lagOf(s).Bytes))
	})
	gauge("lag_seconds", "Seconds that we are behind the source.", func(s Snapshot) (float64, bool) {
		return lagOf(s).value(lagOf(s).Age.Seconds())
	})
	gauge("ready", "1 when everything is connected and data can flow.", func(s Snapshot) (float64, bool) { return truth(s.Ready), true })
	gauge("healthy", "1 unless there is work and no progress.", func(s Snapshot) (float64, bool) { return truth(s.Trouble == ""), true })
	return m
}

func lagOf(s Snapshot) Lag {
	if s.Lag == nil {
		return Lag{Bytes: -1, Age: -1}
	}
	return *s.Lag
}

func (Lag) value(v float64) (float64, bool) { return v, v >= 0 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		ch <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.snapshot()
	for _, d := range m.descs {
		if v, known := d.value(s); known {
			ch <- prometheus.MustNewConstMetric(d.desc, d.kind, v)
		}
	}
}

func metricsHandler(snapshot func() Snapshot) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newMetrics(snapshot), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	probe := func(state func(Snapshot) string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if trouble := state(snapshot()); trouble != "" {
				http.Error(w, pg.Redact(trouble), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("GET /healthz", probe(func(s Snapshot) string { return s.Trouble }))
	mux.HandleFunc("GET /readyz", probe(func(s Snapshot) string {
		if !s.Ready {
			return "not ready: not connected yet"
		}
		return s.Trouble
	}))
	return mux
}

// serveMetrics listens at addr until stop is called.
func serveMetrics(addr string, snapshot func() Snapshot, log *slog.Logger) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fault.New(fault.Failed, "Give --metrics-addr a free host:port, such as 127.0.0.1:9464.", "serve metrics: %w", err)
	}
	server := &http.Server{Handler: metricsHandler(snapshot), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics server ended", "error", err)
		}
	}()
	log.Info("serving metrics", "addr", l.Addr().String())
	return func() {
		// A scrape that is under way gets its answer: it has the last figures of the run.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
		<-done
	}, nil
}
