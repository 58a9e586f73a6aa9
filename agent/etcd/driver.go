// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"sluice.dev/sluice/agent/keyed"
)

// client is made at its first use, because its files may not exist at the start, and made again after a failure that
// its files may have caused.
type client struct {
	mu   sync.Mutex
	made *clientv3.Client
}

func (d *driver) client() (*clientv3.Client, error) {
	d.shared.mu.Lock()
	defer d.shared.mu.Unlock()
	if d.shared.made == nil {
		c, err := d.section.Connect()
		if err != nil {
			return nil, err
		}
		d.shared.made = c
	}
	return d.shared.made, nil
}

func (d *driver) close() {
	d.shared.mu.Lock()
	defer d.shared.mu.Unlock()
	if d.shared.made != nil {
		d.shared.made.Close()
		d.shared.made = nil
	}
}

// List implements keyed.Driver.
func (d *driver) List(ctx context.Context) ([]keyed.Document, keyed.Watch, error) {
	c, err := d.client()
	if err != nil {
		return nil, nil, err
	}
	var all []keyed.Document
	revision, err := d.each(ctx, c, d.section.Prefix, false, func(key string, value []byte) {
		all = append(all, keyed.Document{Key: key, Text: value})
	})
	if err != nil {
		if errors.Is(err, rpctypes.ErrAuthFailed) || errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			d.close()
		}
		return nil, nil, plain("reading "+d.section.Prefix, err)
	}
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	w := c.Watch(watching, d.section.Prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithFragment())
	return all, &watch{c, d.section.Prefix, d.section.StatusPrefix + keyed.MarkKey, w, cancel, revision}, nil
}

// each calls yield for all keys below a prefix as they were at one revision, which it returns.
func (d *driver) each(ctx context.Context, c *clientv3.Client, prefix string, keysOnly bool, yield func(key string, value []byte)) (int64, error) {
	var revision int64
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		options := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(revision)}
		if keysOnly {
			options = append(options, clientv3.WithKeysOnly())
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		answer, err := c.Get(asking, from, options...)
		cancel()
		if err != nil {
			return 0, err
		}
		if revision == 0 {
			revision = answer.Header.Revision
		}
		for _, kv := range answer.Kvs {
			yield(strings.TrimPrefix(string(kv.Key), prefix), kv.Value)
		}
		if !answer.More || len(answer.Kvs) == 0 {
			return revision, nil
		}
		from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

type watch struct {
	client *clientv3.Client
	prefix string
	mark   string
	some   clientv3.WatchChan
	cancel context.CancelFunc
	// The latest that was seen.
	revision int64
}

// wentBack reports whether etcd lost revisions that were read already, as after a restore from a backup: a watch from
// the latest revision would be silent for a long time.
func (w *watch) wentBack(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := w.client.Get(asking, w.prefix, clientv3.WithCountOnly())
	return err == nil && answer.Header.Revision < w.revision
}

var errEnded = errors.New("etcd ended the watch")

// Next implements keyed.Watch. A lost connection is made again by the client, which resumes at the revision that it had seen.
func (w *watch) Next(ctx context.Context) ([]keyed.Document, error) {
	doubt := time.NewTicker(2 * patience)
	defer doubt.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-doubt.C:
			if w.wentBack(ctx) {
				return nil, keyed.ErrListAgain
			}
		case answer, open := <-w.some:
			if !open {
				return nil, errEnded
			}
			if answer.CompactRevision != 0 {
				// The events in between are compacted away.
				return nil, keyed.ErrListAgain
			}
			if err := answer.Err(); err != nil {
				return nil, plain("watching "+w.prefix, err)
			}
			w.revision = max(w.revision, answer.Header.Revision)
			if len(answer.Events) == 0 {
				continue
			}
			changed := make([]keyed.Document, len(answer.Events))
			for i, e := range answer.Events {
				changed[i] = keyed.Document{Key: strings.TrimPrefix(string(e.Kv.Key), w.prefix), Text: e.Kv.Value, Deleted: e.Type == clientv3.EventTypeDelete}
			}
			return changed, nil
		}
	}
}

// Marked implements keyed.Marked.
func (w *watch) Marked(ctx context.Context) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := w.client.Get(asking, w.mark, clientv3.WithCountOnly())
	if err != nil {
		return false, plain("reading "+w.mark, err)
	}
	return answer.Count > 0, nil
}

// Mark implements keyed.Marked.
func (w *watch) Mark(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := w.client.Put(asking, w.mark, keyed.MarkText); err != nil {
		return plain("writing "+w.mark, err)
	}
	return nil
}

var _ keyed.Marked = (*watch)(nil)

// Close implements keyed.Watch.
func (w *watch) Close() { w.cancel() }

// Statuses implements keyed.Driver.
func (d *driver) Statuses(ctx context.Context) ([]string, error) {
	c, err := d.client()
	if err != nil {
		return nil, err
	}
	var keys []string
	if _, err := d.each(ctx, c, d.section.StatusPrefix, true, func(key string, _ []byte) { keys = append(keys, key) }); err != nil {
		return nil, plain("reading "+d.section.StatusPrefix, err)
	}
	return keys, nil
}

// WriteStatuses implements keyed.Driver.
func (d *driver) WriteStatuses(ctx context.Context, updates []keyed.StatusUpdate) error {
	c, err := d.client()
	if err != nil {
		return err
	}
	var operations []clientv3.Op
	size := 0
	send := func() error {
		if len(operations) == 0 {
			return nil
		}
		asking, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := c.Txn(asking).Then(operations...).Commit()
		operations, size = operations[:0], 0
		if err != nil {
			return plain("writing "+d.section.StatusPrefix, err)
		}
		return nil
	}
	for _, t := range updates {
		key := d.section.StatusPrefix + t.Key
		o := clientv3.OpDelete(key)
		if t.Status != nil {
			text := t.Status.JSON()
			if len(operations) > 0 && size+len(key)+len(text) > maxBytes {
				if err := send(); err != nil {
					return err
				}
			}
			size += len(key) + len(text)
			o = clientv3.OpPut(key, string(text))
		}
		if operations = append(operations, o); len(operations) == maxOperations {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}
