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

// Put sends objects to be created or replaced, in order, and has the results told: one for each of them, or an error, after which
// nobody knows what was done. Puts and deletes may be under way together; answers are told in the order in which they come, which is
// that of the requests but for those with an object that takes the data plane long. Who is told must not hold up the connection.
func (c *Client) Put(objects []*api.Object, answered func([]*api.Result, error)) {
	inChunks(c, objects, func(chunk []*api.Object) *api.Request {
		return &api.Request{Operation: &api.Request_Put{Put: &api.Put{Objects: chunk}}}
	}, answered)
}

// Delete is to ObjectNames what Put is to objects.
func (c *Client) Delete(names []*api.ObjectName, answered func([]*api.Result, error)) {
	inChunks(c, names, func(chunk []*api.ObjectName) *api.Request {
		return &api.Request{Operation: &api.Request_Delete{Delete: &api.Delete{Names: chunk}}}
	}, answered)
}

// change is a put or delete, in one request or several.
type change struct {
	answered func([]*api.Result, error)

	mu      sync.Mutex
	results []*api.Result
	err     error
	// Requests that are not answered, and one for those that are not sent.
	open int
}

// settle tells that a part is answered.
func (g *change) settle(at int, results []*api.Result, err error) {
	g.mu.Lock()
	copy(g.results[at:], results)
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

// inChunks sends consecutive parts of all. What can fit no frame gets its result here. One without anything is sent, too.
func inChunks[M proto.Message](c *Client, all []M, request func([]M) *api.Request, answered func([]*api.Result, error)) {
	conn, err := c.current()
	if err != nil {
		answered(nil, err)
		return
	}
	g := &change{answered: answered, results: make([]*api.Result, len(all)), open: 1}
	for start := 0; start < len(all) || start == 0; {
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
			g.results[start] = &api.Result{Code: int32(syscall.EMSGSIZE),
				Message: fmt.Sprintf("it has %d bytes; at most %d can be sent to the data plane", bytes, MaxFrame-frameOverhead)}
		} else {
			g.mu.Lock()
			g.open++
			g.mu.Unlock()
			at, count := start, end-start
			conn.ask(request(all[start:end]), func(reply *api.Reply, err error) {
				results, err := resultsOf(conn, reply, err, count)
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
func resultsOf(conn *conn, reply *api.Reply, err error, count int) ([]*api.Result, error) {
	if err != nil {
		return nil, err
	}
	if refused := reply.GetResult(); refused.GetCode() != 0 {
		return slices.Repeat([]*api.Result{refused}, count), nil
	}
	results := reply.GetResults().GetResults()
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

// GtpuPaths returns one page.
func (c *Client) GtpuPaths(ctx context.Context, q *api.GtpuPathsQuery) (*api.GtpuPaths, error) {
	reply, err := c.do(ctx, &api.Request{Operation: &api.Request_GtpuPaths{GtpuPaths: q}})
	return orEmpty(reply.GetGtpuPaths()), err
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
