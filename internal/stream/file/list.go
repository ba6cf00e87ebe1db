package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"synctl/internal/stream"
)

// List names the streams that lie in dir, sorted by directory; dir alone if it is one itself.
func List(ctx context.Context, dir string) ([]stream.Description, error) {
	if m, err := loadMeta(dir); err == nil {
		return []stream.Description{{Name: m.Name, URL: URL(dir)}}, nil
	} else if !errors.Is(err, stream.ErrNotFound) {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, diskFault("list streams", err)
	}
	var found []stream.Description
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		sub := filepath.Join(dir, e.Name())
		m, err := loadMeta(sub)
		if errors.Is(err, stream.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, stream.Description{Name: m.Name, URL: URL(sub)})
	}
	return found, nil
}
