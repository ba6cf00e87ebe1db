package main

import (
	"fmt"
	"io"
	"time"

	"synctl/internal/cli"
	"synctl/internal/stream"
)

// publishSummary is what publish prints in the end with --output json.
type publishSummary struct {
	Records       int64       `json:"records"`
	StreamRecords int64       `json:"stream_records"`
	Bytes         int64       `json:"bytes"`
	Seconds       float64     `json:"seconds"`
	Retries       int64       `json:"retries"`
	Throttled     int64       `json:"throttled"`
	DeadLetters   int64       `json:"dead_letters"`
	Shards        []shardLoad `json:"shards"`
	HottestKeys   []keyLoad   `json:"hottest_keys"`
}

type shardLoad struct {
	Shard     string `json:"shard"`
	Records   int64  `json:"records"`
	Bytes     int64  `json:"bytes"`
	Throttled int64  `json:"throttled"`
}

type keyLoad struct {
	PartitionKey string `json:"partition_key"`
	Records      int64  `json:"records"`
	Bytes        int64  `json:"bytes"`
}

// summarize prints what was published: the object on stdout when --output json asks for it, a table on stderr
// otherwise, since it is no data.
func (f *publishFlags) summarize(r *cli.Run, sum stream.Summary, took time.Duration) error {
	s := publishSummary{Records: sum.Records, StreamRecords: sum.Entries, Bytes: sum.Bytes, Seconds: took.Seconds(), Retries: sum.Retries,
		Throttled: sum.Throttled, DeadLetters: sum.DeadLetters, Shards: []shardLoad{}, HottestKeys: []keyLoad{}}
	for _, l := range sum.Shards {
		s.Shards = append(s.Shards, shardLoad{l.ID, l.Records, l.Bytes, l.Throttled})
	}
	for _, k := range sum.HotKeys {
		s.HottestKeys = append(s.HottestKeys, keyLoad(k))
	}
	if f.output.Value == "json" {
		return r.Result(f.output, s, func(io.Writer) error { return nil })
	}
	fmt.Fprintf(r.Err, "published %s records (%s) in %s stream records, in %s; %d retries, %d throttled, %d dead letters\n",
		cli.FormatCount(s.Records), cli.FormatBytes(s.Bytes), cli.FormatCount(s.StreamRecords), took.Round(time.Millisecond), s.Retries, s.Throttled, s.DeadLetters)
	if s.Records == 0 {
		return nil
	}
	var rows [][]string
	for _, l := range s.Shards {
		rows = append(rows, []string{l.Shard, cli.FormatCount(l.Records), cli.FormatBytes(l.Bytes), fmt.Sprintf("%.1f%%", 100*float64(l.Records)/float64(max(s.Records, 1))), cli.FormatCount(l.Throttled)})
	}
	if err := cli.Table(r.Err, []string{"SHARD", "RECORDS", "BYTES", "SHARE", "THROTTLED"}, rows); err != nil || len(s.HottestKeys) == 0 {
		return err
	}
	rows = nil
	for _, k := range s.HottestKeys {
		rows = append(rows, []string{k.PartitionKey, cli.FormatCount(k.Records), cli.FormatBytes(k.Bytes)})
	}
	return cli.Table(r.Err, []string{"HOTTEST KEYS", "RECORDS", "BYTES"}, rows)
}
