package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

// ready lists the shards again and launches those whose parents are at their end.
func (r *Replay) ready(ctx context.Context) ([]*shard, error) {
	if len(r.o.Shards) > 0 {
		return nil, nil
	}
	list, err := r.o.Stream.Shards(ctx)
	if err != nil {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	r.mu.Lock()
	r.learn(list, false)
	more := r.startable()
	r.mu.Unlock()
	r.launch(more)
	return more, nil
}

// plan lists the shards and gives those that can be read at once, in the order of their ids.
func (r *Replay) plan(ctx context.Context) ([]*shard, error) {
	list, err := r.o.Stream.Shards(ctx)
	if err != nil {
		return nil, fmt.Errorf("list shards: %w", err)
	}
	if len(r.o.Shards) > 0 {
		if list, err = choose(list, r.o.Shards, r.o.Stream.Name()); err != nil {
			return nil, err
		}
	}
	if r.onePosition() && len(list) != 1 {
		return nil, fault.New(fault.Usage, "Name the shard whose record it is with --shard ID.",
			"a sequence number belongs to one shard, and stream %s has %d", r.o.Stream.Name(), len(list))
	}
	if r.o.End.Kind == UntilSequence {
		if err := r.checkEnd(ctx, list[0].ID); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learn(list, true)
	return r.startable(), nil
}

func (r *Replay) onePosition() bool {
	return r.o.From.Kind == stream.AtSequence || r.o.From.Kind == stream.AfterSequence || r.o.End.Kind == UntilSequence
}

// checkEnd refuses an end that the shard cannot come to: its reading would never end.
func (r *Replay) checkEnd(ctx context.Context, id string) error {
	reader, err := r.o.Stream.Open(ctx, id, stream.Position{Kind: stream.AtSequence, Sequence: r.o.End.Sequence})
	if err != nil {
		return fmt.Errorf("--until-sequence: %w", err)
	}
	return reader.Close()
}

func choose(list []stream.Shard, ids []string, name string) ([]stream.Shard, error) {
	var out []stream.Shard
	for _, id := range ids {
		i := slices.IndexFunc(list, func(s stream.Shard) bool { return s.ID == id })
		if i < 0 {
			return nil, stream.NoShard(name, id)
		}
		if !slices.ContainsFunc(out, func(s stream.Shard) bool { return s.ID == id }) {
			out = append(out, list[i])
		}
	}
	return out, nil
}

// learn adds shards that are new. Those known from the start begin where the options say; those that come later hold only what
// arrived after that, and begin at their beginning.
func (r *Replay) learn(list []stream.Shard, start bool) {
	for _, sh := range list {
		if s := r.shards[sh.ID]; s != nil {
			if s.state == waiting { // what is read belongs to its goroutine
				s.Shard = sh
			}
			continue
		}
		s := &shard{Shard: sh, from: r.o.From}
		if r.o.From.Kind == stream.Latest {
			if !start {
				s.from = stream.Position{Kind: stream.Beginning}
			} else if !sh.Open {
				s.state = closed // it holds nothing that is still to come
			}
		}
		r.shards[sh.ID] = s
	}
}

// startable are the shards that wait and whose parents are all at their end, or not there.
func (r *Replay) startable() []*shard {
	var out []*shard
	for _, s := range r.shards {
		if s.state != waiting {
			continue
		}
		ready := true
		for _, p := range s.Parents {
			if parent := r.shards[p]; parent != nil && parent.state != closed {
				ready = false
			}
		}
		if ready {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *shard) int { return strings.Compare(a.ID, b.ID) })
	return out
}
