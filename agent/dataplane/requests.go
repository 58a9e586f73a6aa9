// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// A put or delete is split so that none holds up the others for long, and none comes near MaxFrame.
const (
	chunkBytes   = 4 << 20
	chunkObjects = 5000
	// Bytes of a frame that are not the object in it.
	frameOverhead = 64
	listPage      = 5000
)

// Put sends objects to be created or replaced, in order. It calls answered once: with a result for each object, or with an error, after which
// it is unknown what the data plane did. Several puts and deletes may be under way. Answers come in the order of the requests, except those
// with an object that takes the data plane long. answered must not block, and must not change the results.
func (c *Client) Put(objects []Packed, answered func([]Result, error)) {
	c.change(requestPut, objects, answered)
}

// Delete is Put for objects of which only the kind and the name are there.
func (c *Client) Delete(names []Packed, answered func([]Result, error)) {
	c.change(requestDelete, names, answered)
}

// change is a put or delete, in one request or several.
type change struct {
	answered func([]Result, error)

	mu      sync.Mutex
	results []Result
	err     error
	// Requests that are not answered, and one for those that are not sent.
	open int
}

// settle records the answer of a part.
func (g *change) settle(at int, results []Result, err error) {
	g.mu.Lock()
	if len(results) == len(g.results) {
		g.results = results
	} else {
		copy(g.results[at:], results)
	}
	if g.err == nil {
		g.err = err
	}
	g.open--
	ended := g.open == 0
	g.mu.Unlock()
	switch {
	case !ended:
	case g.err != nil:
		g.answered(nil, g.err)
	default:
		g.answered(g.results, nil)
	}
}

// change sends consecutive parts of all. An object that fits no frame gets its result here. An empty request is sent,
// too.
func (c *Client) change(operation protowire.Number, all []Packed, answered func([]Result, error)) {
	conn, err := c.current()
	if err != nil {
		answered(nil, err)
		return
	}
	g := &change{answered: answered, results: make([]Result, len(all)), open: 1}
	for start := 0; start < len(all) || start == 0; {
		bytes, end := 0, start
		for end < len(all) && end-start < chunkObjects {
			size := protowire.SizeBytes(all[end].bytes()) + 1
			if bytes+size > chunkBytes && end > start {
				break
			}
			bytes += size
			end++
		}
		if end == start+1 && bytes+frameOverhead > MaxFrame {
			g.results[start] = Result{Code: int32(syscall.EMSGSIZE),
				Message: fmt.Sprintf("it has %d bytes; at most %d can be sent to the data plane", bytes, MaxFrame-frameOverhead)}
		} else {
			g.mu.Lock()
			g.open++
			g.mu.Unlock()
			at, count := start, end-start
			w := &call{results: new([]Result)}
			*w.results = make([]Result, 0, count)
			conn.askAs(w, changing(operation, all[start:end], bytes), func(reply *api.Reply, err error) {
				results, err := resultsOf(conn, reply, *w.results, err, count)
				g.settle(at, results, err)
			})
		}
		if start = end; len(all) == 0 {
			break
		}
	}
	g.settle(len(all), nil, nil)
}

// resultsOf returns so many results. A request that was refused as a whole is as one of which each object was.
func resultsOf(conn *conn, reply *api.Reply, results []Result, err error, count int) ([]Result, error) {
	if err != nil {
		return nil, err
	}
	if refused := reply.GetResult(); refused.GetCode() != 0 {
		if refused.GetCode() == int32(syscall.ESTALE) && conn.term != 0 {
			// Nothing that we ask for is done any more.
			conn.close(overtaken(Refused(refused)))
			return nil, conn.failure()
		}
		return slices.Repeat([]Result{{Code: refused.GetCode(), Message: refused.GetMessage()}}, count), nil
	}
	if len(results) != count {
		return nil, garbled(conn, "%d results for %d objects", len(results), count)
	}
	return results, nil
}

// Pages returns all objects of a kind, or of every kind if it is empty. An error ends it.
func (c *Client) Pages(ctx context.Context, kind string) iter.Seq2[[]*api.Object, error] {
	return func(yield func([]*api.Object, error) bool) {
		// A page that was there before would never end.
		seen := map[string]bool{"": true}
		for page := ""; ; {
			reply, err := c.do(ctx, &api.Request{Operation: &api.Request_List{List: &api.List{Kind: kind, Limit: listPage, Page: page}}})
			next := reply.GetObjects().GetNextPage()
			if err == nil && next != "" && seen[next] {
				err = c.garbled("page %q follows page %q a second time", next, page)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(reply.GetObjects().GetObjects(), nil) || next == "" {
				return
			}
			seen[next] = true
			page = next
		}
	}
}

// List collects the objects of Pages.
func (c *Client) List(ctx context.Context, kind string) ([]*api.Object, error) {
	var all []*api.Object
	for page, err := range c.Pages(ctx, kind) {
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
	}
	return all, nil
}

// PacketsOut sends packets, in their order, and does not wait for anything: the data plane counts those that it cannot send as drops. It
// blocks while the data plane does not read.
func (c *Client) PacketsOut(packets []*api.PacketOut) error {
	conn, err := c.current()
	if err != nil {
		return err
	}
	return conn.send(packetsOut(packets), 0)
}

// PacketOut sends a packet for the control plane.
func (c *Client) PacketOut(ctx context.Context, packet *api.PacketOut) error {
	_, err := c.do(ctx, &api.Request{Operation: &api.Request_PacketOut{PacketOut: packet}})
	return err
}

// Read asks a question about operational state: a message of the contract whose option `state` has `dataplane`. reply is the type of the answer.
func (c *Client) Read(ctx context.Context, query proto.Message, reply protoreflect.MessageType) (proto.Message, error) {
	packed, err := proto.Marshal(query)
	if err != nil {
		return nil, err
	}
	answered, err := c.do(ctx, &api.Request{Operation: &api.Request_State{State: &api.StateQuery{
		Type: string(query.ProtoReflect().Descriptor().Name()), Query: packed}}})
	if err != nil {
		return nil, err
	}
	answer := reply.New().Interface()
	if err := proto.Unmarshal(answered.GetState(), answer); err != nil {
		return nil, c.garbled("the answer to %s: %w", query.ProtoReflect().Descriptor().Name(), err)
	}
	return answer, nil
}

// Answers reports whether data planes answer a query of operational state; else a service does.
func Answers(query protoreflect.MessageDescriptor) bool {
	notes, _ := proto.GetExtension(query.Options(), api.E_State).(*api.OperationalState)
	return notes.GetDataplane()
}

// Ask is Read with the answer's type known.
func Ask[R proto.Message](ctx context.Context, c *Client, query proto.Message) (R, error) {
	var none R
	reply, err := c.Read(ctx, query, none.ProtoReflect().Type())
	if err != nil {
		return none, err
	}
	return reply.(R), nil
}

// Watch streams events and the packets punted for the request's reasons.
func (c *Client) Watch(ctx context.Context, w *api.Watch) (*Stream, error) {
	return c.open(ctx, &api.Request{Operation: &api.Request_Watch{Watch: w}})
}

// Trace streams packets with the nodes they visited.
func (c *Client) Trace(ctx context.Context, t *api.Trace) (*Stream, error) {
	return c.open(ctx, &api.Request{Operation: &api.Request_Trace{Trace: t}})
}

// Capture streams copies of packets.
func (c *Client) Capture(ctx context.Context, w *api.Capture) (*Stream, error) {
	return c.open(ctx, &api.Request{Operation: &api.Request_Capture{Capture: w}})
}
