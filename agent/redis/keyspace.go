// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice.dev/sluice/agent/keyed"
)

// driver has a connection for the watch, made anew with each list, and one for statuses.
type driver struct {
	section *Section
	log     *slog.Logger
	// The last warning about notifications.
	warned bool
	// Of the goroutine that writes statuses.
	statusClient *goredis.Client
}

var _ keyed.Driver = (*driver)(nil)

// Keys in one request.
const batch = 1000

// List implements keyed.Driver. It subscribes before it reads, so that no change is lost in between. Redis notifies
// only connected clients, so everything is listed again after each loss of the connection.
func (d *driver) List(ctx context.Context) (all []keyed.Document, _ keyed.Watch, err error) {
	c, err := d.section.connect()
	if err != nil {
		return nil, nil, err
	}
	w := &watch{client: c, prefix: d.section.Prefix, mark: d.section.StatusPrefix + keyed.MarkKey, interval: d.section.Interval}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	w.notified = d.askForNotifications(ctx, c)
	w.channel = fmt.Sprintf("__keyspace@%d__:", d.section.Database)
	w.events = c.PSubscribe(ctx, glob(w.channel+w.prefix))
	if _, err := w.events.ReceiveTimeout(ctx, patience); err != nil {
		return nil, nil, plain(err)
	}
	keys, err := scan(ctx, c, d.section.Prefix)
	if err != nil {
		return nil, nil, err
	}
	all, err = w.read(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	// An event reports a key that was deleted since it was found.
	present := all[:0]
	for _, one := range all {
		if !one.Deleted {
			present = append(present, one)
		}
	}
	pumping, stop := context.WithCancel(ctx)
	w.stop, w.keys = stop, make(chan string, batch)
	go w.pump(pumping)
	return present, w, nil
}

// askForNotifications enables events of changes in Redis, and returns whether Redis sends them.
func (d *driver) askForNotifications(ctx context.Context, c *goredis.Client) bool {
	// K: by key; A: of all events, because a key may change to a type that is no document.
	const setting, needed = "notify-keyspace-events", "KA"
	now, err := c.ConfigGet(ctx, setting).Result()
	flags := now[setting]
	if err == nil {
		more := flags
		for _, f := range needed {
			if !strings.ContainsRune(more, f) {
				more += string(f)
			}
		}
		if more == flags {
			d.warned = false
			return true
		}
		err = c.ConfigSet(ctx, setting, more).Err()
	}
	if err != nil && !isLost(err) && !d.warned {
		d.warned = true
		d.log.Warn("Redis sends no events of changes, and the agent may not enable them: it reads all keys again and again. Better: set "+setting+" to "+needed,
			"again", d.section.Interval, "error", err)
	}
	if err == nil {
		d.warned = false
	}
	return err == nil
}

// scan returns the keys that begin with a prefix, some of them perhaps twice.
func scan(ctx context.Context, c *goredis.Client, prefix string) ([]string, error) {
	var all []string
	seen := map[string]struct{}{}
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, glob(prefix), batch).Result()
		if err != nil {
			return nil, plain(err)
		}
		for _, k := range keys {
			if _, twice := seen[k]; !twice {
				seen[k] = struct{}{}
				all = append(all, k)
			}
		}
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}

type watch struct {
	client          *goredis.Client
	events          *goredis.PubSub
	prefix, channel string
	mark            string
	// Redis sends events of changes; if not, the driver reads all keys in intervals.
	notified bool
	interval time.Duration
	// Changed keys; closed after a failure.
	keys    chan string
	failure error
	stop    context.CancelFunc
}

// read returns the current content of keys.
func (w *watch) read(ctx context.Context, keys []string) ([]keyed.Document, error) {
	all := make([]keyed.Document, 0, len(keys))
	for from := 0; from < len(keys); from += batch {
		some := keys[from:min(from+batch, len(keys))]
		answers := make([]*goredis.StringCmd, len(some))
		_, err := w.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
			// The library takes the error of the first command, also that there is no such key, for one of all others.
			p.Ping(ctx)
			for i, k := range some {
				answers[i] = p.Get(ctx, k)
			}
			return nil
		})
		if err != nil && !answered(err) {
			return nil, plain(err)
		}
		for i, a := range answers {
			d := keyed.Document{Key: strings.TrimPrefix(some[i], w.prefix)}
			switch text, err := a.Bytes(); {
			case err == nil:
				d.Text = text
			case errors.Is(err, goredis.Nil):
				d.Deleted = true
			case goredis.HasErrorPrefix(err, "WRONGTYPE"):
				d.Err = errors.New("it is no string")
			default:
				return nil, plain(err)
			}
			all = append(all, d)
		}
	}
	return all, nil
}

// Next implements keyed.Watch.
func (w *watch) Next(ctx context.Context) ([]keyed.Document, error) {
	if !w.notified {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(w.interval):
			return nil, keyed.ErrListAgain
		}
	}
	var keys []string
	seen := map[string]struct{}{}
	// Read all queued keys at once.
	for {
		var some string
		var open bool
		if len(keys) == 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case some, open = <-w.keys:
			}
		} else {
			select {
			case some, open = <-w.keys:
			default:
				return w.read(ctx, keys)
			}
		}
		if !open {
			return nil, w.failure
		}
		if _, twice := seen[some]; !twice {
			seen[some] = struct{}{}
			keys = append(keys, some)
		}
		if len(keys) == batch {
			return w.read(ctx, keys)
		}
	}
}

// pump takes events from the connection until an error. It pings Redis if nothing arrives for the patience.
func (w *watch) pump(ctx context.Context) {
	defer close(w.keys)
	asked := false
	for {
		message, err := w.events.ReceiveTimeout(ctx, patience)
		var late net.Error
		switch {
		case ctx.Err() != nil:
			w.failure = ctx.Err()
			return
		case errors.As(err, &late) && late.Timeout() && !asked:
			asked = true
			err = w.events.Ping(ctx)
		case err == nil:
			asked = false
		}
		if err != nil {
			w.failure = plain(err)
			return
		}
		switch m := message.(type) {
		case *goredis.Message:
			select {
			case w.keys <- strings.TrimPrefix(m.Channel, w.channel):
			case <-ctx.Done():
				w.failure = ctx.Err()
				return
			}
		case *goredis.Subscription:
			// The client connected again by itself; events meanwhile are lost.
			w.failure = keyed.ErrListAgain
			return
		}
	}
}

// Marked implements keyed.Marked.
func (w *watch) Marked(ctx context.Context) (bool, error) {
	n, err := w.client.Exists(ctx, w.mark).Result()
	if err != nil {
		return false, plain(err)
	}
	return n > 0, nil
}

// Mark implements keyed.Marked.
func (w *watch) Mark(ctx context.Context) error {
	if err := w.client.Set(ctx, w.mark, keyed.MarkText, 0).Err(); err != nil {
		return plain(err)
	}
	return nil
}

var _ keyed.Marked = (*watch)(nil)

// Close implements keyed.Watch.
func (w *watch) Close() {
	if w.stop != nil {
		w.stop()
		for range w.keys {
		}
	}
	if w.events != nil {
		w.events.Close()
	}
	w.client.Close()
}

// Statuses implements keyed.Driver.
func (d *driver) Statuses(ctx context.Context) ([]string, error) {
	c, err := d.telling()
	if err != nil {
		return nil, err
	}
	keys, err := scan(ctx, c, d.section.StatusPrefix)
	for i, k := range keys {
		keys[i] = strings.TrimPrefix(k, d.section.StatusPrefix)
	}
	return keys, d.done(err)
}

// WriteStatuses implements keyed.Driver.
func (d *driver) WriteStatuses(ctx context.Context, updates []keyed.StatusUpdate) error {
	c, err := d.telling()
	if err != nil {
		return err
	}
	_, err = c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		for _, t := range updates {
			key := d.section.StatusPrefix + t.Key
			if t.Status == nil {
				p.Del(ctx, key)
				continue
			}
			s := t.Status
			first := ""
			if len(s.Mistakes) > 0 {
				first = s.Mistakes[0].Problem
			}
			p.HSet(ctx, key, "state", s.State, "sha256", s.SHA256, "time", s.Time.Format(time.RFC3339Nano), "objects", strconv.Itoa(s.Objects),
				"applied", strconv.Itoa(s.Applied), "mistake", first, "status", s.JSON())
		}
		return nil
	})
	if err != nil {
		err = plain(err)
	}
	return d.done(err)
}

func (d *driver) telling() (*goredis.Client, error) {
	if d.statusClient == nil {
		c, err := d.section.connect()
		if err != nil {
			return nil, err
		}
		d.statusClient = c
	}
	return d.statusClient, nil
}

// done leaves the connection that went wrong: its password may be another by now.
func (d *driver) done(err error) error {
	if err != nil && d.statusClient != nil {
		d.statusClient.Close()
		d.statusClient = nil
	}
	return err
}

// answered reports whether the error is an answer of Redis.
func answered(err error) bool {
	var answer goredis.Error
	return errors.As(err, &answer)
}

func isLost(err error) bool { return !answered(err) }

// plain returns an error without the details of the library.
func plain(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errors.New("no answer")
	}
	return err
}
