package kinesis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"synctl/internal/record"
	"synctl/internal/stream"
)

// barrier writes a truncate to every open shard, between everything before it and everything after it. It runs in
// Write's goroutine: nothing else is in flight.
func (s *Sink) barrier(ctx context.Context, rec *record.Record) error {
	if err := s.drain(ctx); err != nil {
		return err
	}
	name, err := record.AppendPartitionKey(nil, rec)
	if err != nil {
		return fmt.Errorf("publish to %s: %w", s.stream.URL(), err)
	}
	rec.Stream, rec.Floor = nil, 0
	if s.opt.Floor != nil {
		rec.Floor = s.opt.Floor()
	}
	line, err := record.AppendLine(nil, rec)
	if err != nil {
		return fmt.Errorf("publish to %s: %w", s.stream.URL(), err)
	}
	w := &sender{s: s}
	k := &key{name: string(name)}
	if limit := s.maxRecord - len(name); len(line) > limit {
		return w.oversize(ctx, k, rec, line, limit)
	}
	// A shard can be split between being listed and being written to: then one of its children has the record and the
	// other has not. So the list is read again until it names no shard without it.
	has := map[string]bool{}
	for try := 1; ; try++ {
		missing, err := s.shardsWithout(ctx, has)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		entries := make([]entry, len(missing))
		for i, low := range missing {
			entries[i] = entry{key: k, data: line, records: 1, shard: low}
		}
		if err := w.putToShards(ctx, entries, has); err != nil {
			return err
		}
		if try > 1 {
			if err := sleep(ctx, s.pause(min(try, 4))); err != nil {
				return err
			}
		}
	}
}

// shardsWithout gives the lowest hash of each open shard that is not in has.
func (s *Sink) shardsWithout(ctx context.Context, has map[string]bool) (lows []string, err error) {
	for try := 1; ; try++ {
		shards, err := listShards(ctx, s.client, s.stream)
		if err == nil {
			s.load.remap(shards)
			for _, sh := range shards {
				if sh.Open && !has[sh.ID] {
					lows = append(lows, sh.HashLow.String())
				}
			}
			return lows, nil
		}
		if ctx.Err() != nil || errors.Is(err, stream.ErrNotFound) || !transient(err) {
			return nil, err
		}
		s.load.requestFailed(0, err)
		if err := sleep(ctx, s.pause(try)); err != nil {
			return nil, err
		}
	}
}

// putToShards sends one record to many shards, again and again what fails of it, and notes in has who took it.
func (w *sender) putToShards(ctx context.Context, entries []entry, has map[string]bool) error {
	s := w.s
	for try := 1; len(entries) > 0; try++ {
		n := max(1, min(len(entries), s.opt.RequestRecords, s.opt.RequestBytes/entries[0].size()))
		records := make([]types.PutRecordsRequestEntry, n)
		for i := range records {
			e := &entries[i]
			records[i] = types.PutRecordsRequestEntry{PartitionKey: &e.key.name, Data: e.data, ExplicitHashKey: &e.shard}
		}
		in := &kinesis.PutRecordsInput{Records: records}
		in.StreamName, in.StreamARN = s.stream.names()
		s.load.sent(n)
		callCtx, cancel := context.WithTimeout(ctx, s.opt.RequestTimeout)
		out, err := s.client.PutRecords(callCtx, in)
		expired := callCtx.Err() != nil
		cancel()
		s.load.returned(n)
		var again []entry
		switch {
		case err == nil && len(out.Records) == n:
			again = s.load.sortShards(entries[:n], out.Records, has)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !transient(err) && !expired:
			return explain(s.stream, "PutRecords", err)
		default:
			again = append(again, entries[:n]...)
			s.load.requestFailed(n, err)
		}
		entries = append(again, entries[n:]...)
		if len(again) > 0 {
			s.load.report(s.log, s.opt, s.stream, time.Now(), false)
			if err := sleep(ctx, s.pause(try)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sortShards notes who took the record, and gives the entries that nobody took.
func (l *load) sortShards(entries []entry, results []types.PutRecordsResultEntry, has map[string]bool) (again []entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range entries {
		if c := aws.ToString(results[i].ErrorCode); c != "" {
			l.refused(&entries[i], c)
			again = append(again, entries[i])
			continue
		}
		shard := aws.ToString(results[i].ShardId)
		has[shard] = true
		l.stored(&entries[i], shard)
	}
	return again
}
