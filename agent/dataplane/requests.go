package dataplane

import (
	"context"
	"fmt"
	"iter"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

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

// Put creates or replaces objects, in order. It returns a result for each of them; with an error, results only for those
// whose answer came.
func (c *Client) Put(ctx context.Context, objects []*api.Object) ([]*api.Result, error) {
	return inChunks(objects, func(chunk []*api.Object) ([]*api.Result, error) {
		return c.results(ctx, len(chunk), &api.Request{Operation: &api.Request_Put{Put: &api.Put{Objects: chunk}}})
	})
}

// Delete is to ObjectNames what Put is to objects.
func (c *Client) Delete(ctx context.Context, names []*api.ObjectName) ([]*api.Result, error) {
	return inChunks(names, func(chunk []*api.ObjectName) ([]*api.Result, error) {
		return c.results(ctx, len(chunk), &api.Request{Operation: &api.Request_Delete{Delete: &api.Delete{Names: chunk}}})
	})
}

func (c *Client) results(ctx context.Context, count int, request *api.Request) ([]*api.Result, error) {
	reply, err := c.do(ctx, request)
	if err != nil {
		return nil, err
	}
	results := reply.GetResults().GetResults()
	if len(results) != count {
		return nil, c.garbled("%d results for %d objects", len(results), count)
	}
	return results, nil
}

// inChunks calls each for consecutive parts of all. What can fit no frame gets its result here.
func inChunks[M proto.Message](all []M, each func([]M) ([]*api.Result, error)) ([]*api.Result, error) {
	results := make([]*api.Result, 0, len(all))
	for start := 0; start < len(all); {
		bytes, end := 0, start
		for end < len(all) && end-start < chunkObjects {
			size := protowire.SizeBytes(proto.Size(all[end])) + 1
			if bytes+size > chunkBytes && end > start {
				break
			}
			bytes += size
			end++
		}
		if end == start+1 && bytes+frameOverhead > MaxFrame {
			results = append(results, &api.Result{Code: int32(syscall.EMSGSIZE),
				Message: fmt.Sprintf("it has %d bytes; at most %d can be sent to the data plane", bytes, MaxFrame-frameOverhead)})
		} else {
			chunk, err := each(all[start:end])
			if err != nil {
				return results, err
			}
			results = append(results, chunk...)
		}
		start = end
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

// List collects what Pages returns.
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

// PacketOut sends a packet for the control plane.
func (c *Client) PacketOut(ctx context.Context, packet *api.PacketOut) error {
	_, err := c.do(ctx, &api.Request{Operation: &api.Request_PacketOut{PacketOut: packet}})
	return err
}

// NodeCounters returns what each node of the graph did.
func (c *Client) NodeCounters(ctx context.Context, q *api.NodeCountersQuery) (*api.NodeCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_NodeCounters{NodeCounters: q}})
	return orEmpty(reply.GetNodeCounters()), err
}

// PortCounters returns what each port sent and received.
func (c *Client) PortCounters(ctx context.Context, q *api.PortCountersQuery) (*api.PortCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_PortCounters{PortCounters: q}})
	return orEmpty(reply.GetPortCounters()), err
}

// InterfaceCounters returns what each interface sent and received.
func (c *Client) InterfaceCounters(ctx context.Context, q *api.InterfaceCountersQuery) (*api.InterfaceCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_InterfaceCounters{InterfaceCounters: q}})
	return orEmpty(reply.GetInterfaceCounters()), err
}

// SessionCounters returns one page.
func (c *Client) SessionCounters(ctx context.Context, q *api.SessionCountersQuery) (*api.SessionCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_SessionCounters{SessionCounters: q}})
	return orEmpty(reply.GetSessionCounters()), err
}

// SessionTotals returns what all sessions together did.
func (c *Client) SessionTotals(ctx context.Context) (*api.SessionTotals, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_SessionTotals{SessionTotals: &api.SessionTotalsQuery{}}})
	return orEmpty(reply.GetSessionTotals()), err
}

// QueueCounters returns those of a session.
func (c *Client) QueueCounters(ctx context.Context, q *api.QueueCountersQuery) (*api.QueueCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_QueueCounters{QueueCounters: q}})
	return orEmpty(reply.GetQueueCounters()), err
}

// SchedulerCounters returns what each scheduler did.
func (c *Client) SchedulerCounters(ctx context.Context, q *api.SchedulerCountersQuery) (*api.SchedulerCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_SchedulerCounters{SchedulerCounters: q}})
	return orEmpty(reply.GetSchedulerCounters()), err
}

// DropCounters returns the reasons that occurred.
func (c *Client) DropCounters(ctx context.Context, q *api.DropCountersQuery) (*api.DropCountersList, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_DropCounters{DropCounters: q}})
	return orEmpty(reply.GetDropCounters()), err
}

// NeighborStates returns one page.
func (c *Client) NeighborStates(ctx context.Context, q *api.NeighborStatesQuery) (*api.NeighborStates, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_NeighborStates{NeighborStates: q}})
	return orEmpty(reply.GetNeighborStates()), err
}

// orEmpty: a data plane that has nothing to say may leave the answer out.
func orEmpty[T any](answer *T) *T {
	if answer == nil {
		return new(T)
	}
	return answer
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
