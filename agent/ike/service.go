// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	tick = 50 * time.Millisecond
	// The reason for which the data plane punts ESP packets of no SA.
	unknownSPI = "esp-unknown-spi"
	// How often the agent checks files for changes.
	lookAgain = 5 * time.Second
)

// Definition is IKEv2.
var Definition = service.Definition{
	Name:  "ike",
	Kinds: []string{"Interface", "IkeCredential", "IkeAuthority", "AddressPool", "LocalUser", "IpsecPolicy", "IkeConnection", "IkePeer"},
	Punts: []string{"ike", unknownSPI},
	New:   newServing,

	RPCs:     []service.RPC{rpc},
	Commands: commands,
}

// serving is the service.
type serving struct {
	service.Environment
	packets, drops, failures        *prometheus.CounterVec
	tunnelStates, endedAssociations *prometheus.GaugeVec

	mu          sync.Mutex
	machine     *Machine
	synced      bool
	first       chan struct{}
	planes      map[string]*dataplane.Client // that are connected
	vrfs        map[string]string            // by interface
	shadowed    map[string]*object.Object    // IkeConnections with the name of an IkePeer
	addresses   map[string][]localAddress    // by interface
	local       map[localAddress]int         // how many interfaces have it
	credentials service.View[*api.IkeCredential]
	authorities service.View[*api.IkeAuthority]
	pools       service.View[*api.AddressPool]
	users       service.View[*api.LocalUser]
	// By the username in lower case; nil: to be made anew.
	folded   map[string][]*api.LocalUser
	policies service.View[*api.IpsecPolicy]
	// IkeConnections, and what IkePeers stand for.
	specs     map[string]*object.Object
	sites     map[string]*site
	leases    map[uint64]held
	allocator subscriber.Pools
	manager   subscriber.Manager
	files     files
	// Of all authorities, by their files.
	lists map[string]*listFile
	// By the URL of IkeAuthorities; "": the URLs of certificates.
	responders map[string]*responder
	// Files of private keys that other users of the host can read, and that the log has named.
	exposed map[string]bool
	// Of credentials and authorities with files.
	materials map[object.Key]*material
	// Why a connection does not serve; none: it does.
	problems map[string]intent.NotReady
	// The child of the problem ChildFailed.
	failed map[string]string
	ended  endings
	// Associations that the data plane has not answered for, by inbound SPI; closed when it has.
	waiting map[uint32]*installation
	talks   map[uint64]eap.Conversation
	owners  *owners
	tasks   tasks
	// Of the certificates of peers.
	verifications verifications
	outbox        []outgoing
	later         []func()
	records       []durable.Pending
	// Records that found the log full.
	refused []durable.Record
	// There is something in the outbox.
	posted chan struct{}
}

// installation is the associations of a child that the data plane is to create.
type installation struct {
	left int
	err  error
	done chan struct{}
	// Deletions of objects that the installation replaces.
	then []func()
}

// outgoing is a packet that waits for records and associations.
type outgoing struct {
	plane   string
	packet  *api.PacketOut
	records []durable.Pending
	after   []chan struct{}
}

func newServing(e service.Environment) (service.Service, error) {
	s := &serving{Environment: e, machine: New(time.Now()), first: make(chan struct{}), planes: map[string]*dataplane.Client{}, vrfs: map[string]string{}, addresses: map[string][]localAddress{}, local: map[localAddress]int{}, shadowed: map[string]*object.Object{}, credentials: map[string]*api.IkeCredential{},
		authorities: map[string]*api.IkeAuthority{}, pools: map[string]*api.AddressPool{}, users: map[string]*api.LocalUser{}, policies: map[string]*api.IpsecPolicy{}, specs: map[string]*object.Object{}, sites: map[string]*site{},
		leases: map[uint64]held{}, files: files{}, lists: map[string]*listFile{}, responders: map[string]*responder{}, exposed: map[string]bool{}, materials: map[object.Key]*material{}, problems: map[string]intent.NotReady{}, failed: map[string]string{}, waiting: map[uint32]*installation{}, talks: map[uint64]eap.Conversation{}, owners: newOwners(), posted: make(chan struct{}, 1),
		packets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ike_packets_total", Help: "IKE packets, by exchange.",
		}, []string{"type"}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ike_drops_total", Help: "IKE packets that were not served.",
		}, []string{"reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ike_failures_total", Help: "IKE exchanges that failed, by the notification or the reason.",
		}, []string{"reason"}),
		tunnelStates: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_ike_tunnels", Help: "IpsecTunnels, by whether they have a security association of each direction that has not ended.",
		}, []string{"dataplane", "state"}),
		endedAssociations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_ike_ended_associations", Help: "Security associations with static keys that have ended.",
		}, []string{"dataplane"})}
	gauge := func(name, help string, labels prometheus.Labels, value func(all, halfOpen, children int) int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(value(s.machine.Size()))
		})
	}
	s.verifications.limit = max(1, runtime.GOMAXPROCS(0)/2)
	s.verifications.start = func(run func()) bool { return s.background(func(context.Context) { run() }) }
	for _, c := range []prometheus.Collector{s.packets, s.drops, s.failures, s.tunnelStates, s.endedAssociations,
		gauge("sluice_ike_sas", "IKE SAs, by whether they are half-open.", prometheus.Labels{"state": "half-open"}, func(_, halfOpen, _ int) int { return halfOpen }),
		gauge("sluice_ike_sas", "IKE SAs, by whether they are half-open.", prometheus.Labels{"state": "established"}, func(all, halfOpen, _ int) int { return all - halfOpen }),
		gauge("sluice_ike_children", "Child SAs of IKE.", nil, func(_, _, children int) int { return children })} {
		if err := e.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// locked runs f and carries out its actions.
func (s *serving) locked(f func(now time.Time) []Action) {
	s.mu.Lock()
	s.carryOut(f(time.Now()))
	later := s.later
	s.later = nil
	s.mu.Unlock()
	for _, f := range later {
		f()
	}
}

// Follow implements service.Follower.
func (s *serving) Follow(c service.Change) {
	if spec := service.SpecOf[*api.IkeAuthority](c.Object); spec != nil {
		s.loadLists(spec.GetRevocationListFiles()...)
	}
	s.locked(func(now time.Time) (actions []Action) {
		name := c.Key.Name
		switch c.Key.Kind {
		case "Interface":
			if spec := service.SpecOf[*api.Interface](c.Object); spec != nil {
				s.vrfs[name] = object.VRFName(spec.GetVrf())
			} else {
				delete(s.vrfs, name)
			}
			s.followAddresses(name, c.Object)
		case "AddressPool":
			s.pools.Follow(c)
		case "LocalUser":
			before, now := s.users.Follow(c)
			s.folded = nil
			// Users of a RADIUS server may have the same names.
			return s.machine.dropTicketsOf(func(c *Connection, username string) bool {
				return c.EAPMethod != RADIUS && (username == before.GetUsername() || username == now.GetUsername())
			})
		case "IkeCredential":
			s.credentials.Follow(c)
			s.readMaterial(c.Key, now)
			s.expandEach(func(peer *api.IkePeer) bool { return peer.GetCredential() == name })
			return s.refresh(now, func(spec *api.IkeConnection) bool { return spec.GetCredential() == name })
		case "IkeAuthority":
			s.authorities.Follow(c)
			s.readMaterial(c.Key, now)
			return s.refresh(now, func(spec *api.IkeConnection) bool { return slices.Contains(spec.GetAuthorities(), name) })
		case "IpsecPolicy":
			s.policies.Follow(c)
			for _, peer := range s.expandEach(func(peer *api.IkePeer) bool { return peer.GetPolicy() == name }) {
				actions = append(actions, s.configure(peer, now)...)
			}
		case "IkePeer":
			return s.followSite(name, c.Object, now)
		case "IkeConnection":
			delete(s.shadowed, name)
			o := s.specs[name]
			peers := o != nil && o.Kind == "IkePeer"
			switch {
			case c.Object != nil && peers:
				s.shadowed[name] = c.Object
				return nil
			case c.Object != nil:
				s.specs[name] = c.Object
				s.anew(name)
			case !peers:
				actions = s.forget(name, now)
			}
			s.expand(name)
			return append(actions, s.configure(name, now)...)
		}
		return actions
	})
}

// anew forgets why a connection of another configuration was not up. s.mu is held.
func (s *serving) anew(name string) {
	if s.problems[name].Reason == "NotConnected" {
		s.problem(name, "", "")
	}
}

// localAddress is an address in a VRF.
type localAddress struct {
	vrf     string
	address netip.Addr
}

// followAddresses takes the addresses of an Interface, and has the connections looked at that have one of them. s.mu is held.
func (s *serving) followAddresses(name string, o *object.Object) {
	before := s.addresses[name]
	var now []localAddress
	if o != nil {
		if spec, is := o.Spec.(*api.Interface); is {
			for _, text := range spec.GetAddresses() {
				if p, err := netip.ParsePrefix(text); err == nil {
					now = append(now, localAddress{object.VRFName(spec.GetVrf()), p.Addr()})
				}
			}
		}
	}
	if slices.Equal(before, now) {
		return
	}
	for _, one := range before {
		if s.local[one]--; s.local[one] == 0 {
			delete(s.local, one)
		}
	}
	for _, one := range now {
		s.local[one]++
	}
	if s.addresses[name] = now; len(now) == 0 {
		delete(s.addresses, name)
	}
	if s.Intent == nil || !s.synced {
		return
	}
	for name, o := range s.specs {
		spec, _ := o.Spec.(*api.IkeConnection)
		if p := localAddressOf(spec); slices.Contains(before, p) != slices.Contains(now, p) {
			s.later = append(s.later, func() { s.Intent.Touched(object.Key{Kind: o.Kind, Name: name}) })
		}
	}
}

// localAddressOf is the address of a connection.
func localAddressOf(spec *api.IkeConnection) localAddress {
	a, _ := netip.ParseAddr(spec.GetLocalAddress()) // it has the form of one
	return localAddress{object.VRFName(spec.GetVrf()), a}
}

// forget deletes a connection. s.mu is held.
func (s *serving) forget(name string, now time.Time) []Action {
	delete(s.specs, name)
	delete(s.problems, name)
	delete(s.failed, name)
	if before := s.machine.connections[name]; before != nil && before.Owned {
		return nil
	}
	return s.machine.SetConnection(name, nil, now)
}

// connecting is the reason of a connection that is opened for the first time.
const connecting = "Connecting"

func everyConnection(*api.IkeConnection) bool { return true }

// refresh configures connections anew. s.mu is held.
func (s *serving) refresh(now time.Time, which func(spec *api.IkeConnection) bool) (actions []Action) {
	if !s.synced {
		return nil
	}
	for name, o := range s.specs {
		if spec, is := o.Spec.(*api.IkeConnection); is && !which(spec) {
			continue
		}
		actions = append(actions, s.configure(name, now)...)
	}
	return actions
}

// configure gives a connection to the machine. s.mu is held.
func (s *serving) configure(name string, now time.Time) []Action {
	if !s.synced {
		return nil // Synced does it
	}
	o := s.specs[name]
	if o == nil {
		return nil
	}
	spec, _ := o.Spec.(*api.IkeConnection)
	var authorities []*Authority
	var problem error
	for _, one := range spec.GetAuthorities() {
		if s.authorities[one] == nil {
			problem = fmt.Errorf("authorities: IkeAuthority/%s does not exist", one)
			continue
		}
		a, err := s.authority(one, s.authorities[one])
		if err != nil {
			problem = fmt.Errorf("authorities: %w", err)
			continue
		}
		authorities = append(authorities, a)
	}
	if one := s.sites[name]; one != nil && o.Kind == "IkePeer" {
		if peer, _ := one.peer.Spec.(*api.IkePeer); peer.GetPolicy() != "" && s.policies[peer.GetPolicy()] == nil {
			problem = fmt.Errorf("policy: IpsecPolicy/%s does not exist", peer.GetPolicy())
		}
	}
	if one := spec.GetCredential(); one != "" && s.credentials[one] == nil {
		problem = fmt.Errorf("credential: IkeCredential/%s does not exist", one)
	}
	dataplane := o.Labels["dataplane"]
	if dataplane == "" && len(s.Dataplanes) > 0 {
		dataplane = s.Dataplanes[0]
	}
	if before := s.machine.connections[name]; before != nil && before.Owned {
		s.problem(name, notConfigured, "another service has an IKE connection of this name")
		return nil
	}
	c, err := connectionOf(name, dataplane, spec, s.credentials[spec.GetCredential()], authorities, s.files.read)
	switch certificates := s.credentials[spec.GetCredential()].GetCertificateFile() != ""; {
	case problem != nil:
		err = problem
	case errors.Is(err, errNoSharedKey) && certificates && o.Kind == "IkePeer":
		err = fmt.Errorf("%w, or name authorities of the IkePeer", err)
	case errors.Is(err, errNoSharedKey) && certificates:
		err = fmt.Errorf("%w, or localAuthentication and remoteAuthentication of the IkeConnection", err)
	}
	if err != nil {
		// A file that is being replaced must not end the IKE SAs of the connection, nor those of an earlier agent.
		before := s.machine.connections[name]
		if before != nil && !before.Frozen {
			s.problem(name, notConfigured, err.Error()+"; the configuration of before stays in force")
			return nil
		}
		s.problem(name, notConfigured, err.Error())
		frozen, err := frozenOf(name, dataplane, spec)
		if err != nil {
			return s.machine.SetConnection(name, nil, now)
		}
		return s.machine.SetConnection(name, frozen, now)
	}
	if fault := c.ownFault(now); fault != "" && !s.machine.any(name) {
		s.problem(name, invalidCertificate, fault)
	} else if reason := s.problems[name].Reason; reason == notConfigured || reason == invalidCertificate {
		s.problem(name, "", "")
	}
	s.checkKeyFile(s.credentials[spec.GetCredential()].GetPrivateKeyFile(), spec.GetCredential())
	if _, there := s.problems[name]; !there && s.machine.mustBeUp(c) && !s.machine.any(name) {
		s.problem(name, connecting, "the peer has not answered yet")
	}
	return s.machine.SetConnection(name, c, now)
}

// checkKeyFile warns once of a private key that each user of the host can read. s.mu is held.
func (s *serving) checkKeyFile(path, credential string) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	exposed := err == nil && info.Mode().Perm()&0o004 != 0
	if exposed && !s.exposed[path] {
		s.Log.Warn("each user of the host can read a private key: make its mode 0600", "name", credential, "path", path)
	}
	if exposed {
		s.exposed[path] = true
	} else {
		delete(s.exposed, path)
	}
}

// Reasons of conditions.
const (
	// Fields, references or files.
	notConfigured = "NotConfigured"
	// The gateway's own certificate, which peers refuse.
	invalidCertificate = "InvalidCertificate"
)

// problem sets the condition of a connection; "": it has no problem. s.mu is held.
func (s *serving) problem(name, reason, words string) {
	before := s.problems[name]
	if before.Reason == reason && before.Message == words {
		return
	}
	kind := "IkeConnection"
	if o := s.specs[name]; o != nil {
		kind = o.Kind
	}
	if reason == "" {
		delete(s.problems, name)
	} else {
		s.problems[name] = intent.NotReady{Reason: reason, Message: words, Since: time.Now(), External: reason != notConfigured && reason != invalidCertificate}
	}
	switch {
	case reason == notConfigured || reason == invalidCertificate:
		s.Log.Warn("an IKE connection is not configured", "kind", kind, "name", name, "why", words)
	case before.Reason == notConfigured || before.Reason == invalidCertificate:
		s.Log.Info("an IKE connection is configured", "kind", kind, "name", name)
	}
	if s.Intent != nil {
		s.later = append(s.later, func() { s.Intent.Touched(object.Key{Kind: kind, Name: name}) })
	}
}

// NotReady implements service.ReadinessReporter.
func (s *serving) NotReady(plane string, kept *object.StoredObject) intent.NotReady {
	if kept.KindName() == associationKind {
		return s.ended.notReady(plane, kept.Key().Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name := kept.Key().Name; kept.KindName() {
	case "IkeConnection":
		if s.shadowed[name] != nil {
			return intent.NotReady{Reason: notConfigured, Message: "an IkePeer has this name: give one of the two another name"}
		}
		return s.connectionNotReady(name)
	case "IkePeer":
		return s.siteNotReady(name)
	case "IkeCredential", "IkeAuthority":
		if m := s.materials[kept.Key()]; m != nil {
			return m.shown
		}
	}
	return intent.NotReady{}
}

// connectionNotReady says why a connection is not up. s.mu is held.
func (s *serving) connectionNotReady(name string) intent.NotReady {
	why := s.problems[name]
	o := s.specs[name]
	if o == nil || why.Reason == notConfigured {
		return why
	}
	spec, _ := o.Spec.(*api.IkeConnection)
	if p := localAddressOf(spec); s.local[p] == 0 {
		return intent.NotReady{Reason: notConfigured, Message: "localAddress: no Interface of Vrf/" + p.vrf + " has " + p.address.String(), Since: why.Since}
	}
	return why
}

// Synced implements service.Follower.
func (s *serving) Synced() {
	begins := false
	s.locked(func(now time.Time) []Action {
		if s.synced {
			return nil
		}
		s.synced, begins = true, true
		for name := range s.sites {
			if o := s.specs[name]; o != nil {
				s.shadowed[name] = o
				delete(s.specs, name)
			}
		}
		s.readMaterials(now)
		s.expandEach(everySite)
		actions := s.refresh(now, everyConnection)
		if s.Records != nil {
			records := map[string][]byte{}
			for _, r := range s.Records.All() {
				records[r.Key] = r.Value
			}
			restored, n := s.machine.Restore(records, now)
			if n > 0 {
				s.Log.Info("IKE SAs were restored", "objects", n)
			}
			for name := range s.specs {
				if s.problems[name].Reason == connecting && s.machine.any(name) {
					s.problem(name, "", "")
				}
			}
			actions = append(actions, restored...)
			actions = append(actions, s.machine.dropTicketsOf(s.unknownUser)...)
		}
		return actions
	})
	if begins {
		// Run reports that the SAs are complete: data planes delete the others.
		close(s.first)
	}
}

// Run implements service.Service.
func (s *serving) Run(ctx context.Context) error {
	defer s.tasks.end()
	select {
	case <-ctx.Done():
		return nil
	case <-s.first:
	}
	asked := query{serving: s}
	defer service.Offer[api.IkeServer](s.Environment, asked)()
	defer service.Provide(s.Environment, asked.sas)()
	defer service.Provide(s.Environment, asked.tunnels)()
	defer service.Provide(s.Environment, asked.counters)()
	defer service.Provide(s.Environment, asked.contents)()
	defer service.Offer[Server](s.Environment, registry{s})()
	var group sync.WaitGroup
	defer group.Wait()
	group.Add(4)
	go func() {
		defer group.Done()
		s.serveUsers(ctx)
	}()
	go func() {
		defer group.Done()
		s.servePools(ctx)
	}()
	go func() {
		defer group.Done()
		s.post(ctx)
	}()
	go func() {
		defer group.Done()
		s.owners.run(ctx)
	}()
	if err := s.Objects.Complete(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("completing: %w", err)
	}
	clock, look := time.NewTicker(tick), time.NewTicker(lookAgain)
	defer clock.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-clock.C:
			s.locked(func(time.Time) []Action { return s.machine.Tick(now) })
		case now := <-look.C:
			s.loadLists()
			s.locked(func(time.Time) []Action {
				s.expandEach(everySite)
				actions := s.judgeMaterials(now)
				if !s.files.changed() {
					return actions
				}
				s.readMaterials(now)
				return append(actions, s.refresh(now, everyConnection)...)
			})
		}
	}
}

// Receive implements service.Receiver.
func (s *serving) Receive(packets []service.Packet) {
	s.locked(func(now time.Time) (actions []Action) {
		for _, p := range packets {
			if p.Reason == unknownSPI {
				if from, to, spi, ok := espOf(p.Frame); ok {
					actions = append(actions, s.machine.UnknownSPI(p.Dataplane, s.vrfs[p.Interface], to, from, spi, now)...)
				}
				continue
			}
			from, to, payload, ok := parseFrame(p.Frame)
			vrf := s.vrfs[p.Interface]
			if !ok || vrf == "" {
				s.drops.WithLabelValues("no-datagram").Inc()
				continue
			}
			actions = append(actions, s.machine.Receive(Datagram{Dataplane: p.Dataplane, VRF: vrf, Local: to, Remote: from, Data: payload}, now)...)
		}
		return actions
	})
}

// carryOut carries out actions that do not block, and queues the others. s.mu is held.
func (s *serving) carryOut(actions []Action) {
	labelled := len(s.Dataplanes) > 1
	s.keep(actions)
	for _, a := range actions {
		if s.owners.carryOut(a, func(token uint64, answer any) {
			s.locked(func(now time.Time) []Action { return s.machine.Answered(token, answer, now) })
		}) {
			continue
		}
		switch a := a.(type) {
		case Send:
			one := outgoing{plane: a.Dataplane, packet: service.Routed(a.VRF, ipPacket(a.Local, a.Remote, a.Data)), records: s.records}
			s.records = nil
			for _, spi := range a.After {
				if w := s.waiting[spi]; w != nil {
					one.after = append(one.after, w.done)
				}
			}
			s.outbox = append(s.outbox, one)
			select {
			case s.posted <- struct{}{}:
			default:
			}
		case Install:
			s.install(a, labelled)
		case Move:
			for _, outbound := range []bool{false, true} {
				s.Objects.Put(association(a.Child, outbound, labelled), nil)
			}
		case Remove:
			remove := func() {
				for _, outbound := range []bool{true, false} {
					if !outbound && a.OutboundOnly {
						continue
					}
					s.Objects.Delete(object.Key{Kind: associationKind, Name: associationName(a.Child, outbound)}, nil)
				}
			}
			if w := s.waiting[a.After]; w != nil {
				// A batch of changes has deletions first.
				w.then = append(w.then, remove)
			} else {
				remove()
			}
		case Ask:
			s.later = append(s.later, func() { s.ask(a) })
		case EAPEnd:
			if talk, is := s.talks[a.Conversation].(eap.Ender); is {
				s.later = append(s.later, func() { s.background(func(context.Context) { talk.End() }) })
			}
			delete(s.talks, a.Conversation)
		case TakeAddress:
			s.leases[a.Lease] = held{pools: a.Pools, addresses: a.Addresses, tunnel: a.Tunnel}
			if a.Tunnel != "" {
				s.Objects.Put(s.userTunnel(a.Tunnel, a.Dataplane, a.VRF), nil)
			}
		case ReleaseAddress:
			s.release(a.Lease, a.Cause)
		case Count:
			switch a.What {
			case "packet":
				s.packets.WithLabelValues(a.Reason).Inc()
			case "drop":
				s.drops.WithLabelValues(a.Reason).Inc()
			default:
				s.failures.WithLabelValues(a.Reason).Inc()
			}
		case Event:
			s.event(a)
		}
	}
	if len(s.records) > 1024 {
		s.records = s.records[len(s.records)-1:] // records reach the disk in order
	}
}

// keep writes the records of actions. All of them are on the disk, or none: a rekey that moves the children from one IKE SA to another has a record of
// each. No packet of the actions is sent before. s.mu is held.
func (s *serving) keep(actions []Action) {
	if s.Records == nil {
		return
	}
	// The disk may have room again.
	all := s.refused
	s.refused = nil
	at := map[string]int{}
	for i, r := range all {
		at[r.Key] = i
	}
	for _, a := range actions {
		if k, is := a.(Keep); is {
			// The last value of a key counts.
			i, again := at[k.Key]
			if !again {
				i = len(all)
				at[k.Key], all = i, append(all, durable.Record{})
			}
			all[i] = durable.Record{Key: k.Key, Value: k.Value}
		}
	}
	if len(all) == 0 {
		return
	}
	p := s.Records.Put(all...)
	if p.Refused() == nil {
		s.records = append(s.records, p)
		return
	}
	// One of them may be at fault.
	for _, r := range all {
		p := s.Records.Put(r)
		if s.records = append(s.records, p); errors.Is(p.Refused(), durable.ErrFull) {
			s.refused = append(s.refused, r)
		}
	}
}

// forUsers reports whether a connection is for remote users.
func forUsers(o *object.Object) bool {
	spec, is := o.Spec.(*api.IkeConnection)
	return is && (spec.GetRemoteAuthentication() == api.IkeAuthentication_EAP || len(spec.GetPools()) > 0 || spec.GetSubscriberProfile() != "")
}

// event writes the log and sets the condition of the connection. s.mu is held.
func (s *serving) event(e Event) {
	switch e.What {
	case "up":
		if s.problems[e.Connection].Reason != notConfigured {
			s.problem(e.Connection, "", "")
		}
		s.Log.Info("an IKE peer is connected", "name", e.Connection, "remote", e.Peer.String(), "why", e.Detail)
	case "down", "failed":
		// One remote user of many says nothing about the connection.
		if o := s.specs[e.Connection]; o != nil && !s.machine.any(e.Connection) && !forUsers(o) {
			s.problem(e.Connection, "NotConnected", e.Detail)
		}
		if !e.Again {
			s.Log.Warn("an IKE peer is not connected", "name", e.Connection, "remote", e.Peer.String(), "why", e.Detail)
		}
	case "unknown-caller":
		s.Log.Warn("an IKE peer is refused", "remote", e.Peer.String(), "why", e.Detail)
	case "moved":
		s.Log.Info("an IKE SA moves to other addresses", "name", e.Connection, "remote", e.Peer.String(), "why", e.Detail)
	case "child-failed", "rekey-failed":
		if e.Child != "" && s.specs[e.Connection] != nil && !s.machine.hasChild(e.Connection, e.Child) {
			s.problem(e.Connection, "ChildFailed", e.Detail)
			s.failed[e.Connection] = e.Child
		}
		if e.Again {
			break
		}
		s.Log.Warn("an IKE exchange failed", "name", e.Connection, "remote", e.Peer.String(), "action", e.What, "why", e.Detail)
	case "child-up", "child-rekeyed":
		if s.problems[e.Connection].Reason == "ChildFailed" && s.machine.hasChild(e.Connection, s.failed[e.Connection]) {
			s.problem(e.Connection, "", "")
		}
		fallthrough
	default:
		s.Log.Debug("an IKE SA changed", "name", e.Connection, "remote", e.Peer.String(), "action", e.What, "why", e.Detail)
	}
}

// install has the data plane create associations: the inbound one first. s.mu is held.
func (s *serving) install(a Install, labelled bool) {
	spi := a.Child.SPIIn
	w := &installation{done: make(chan struct{})}
	result := func(r service.Result) {
		s.locked(func(now time.Time) []Action {
			w.left--
			if r.Err != nil && w.err == nil {
				w.err = r.Err
			}
			if w.left > 0 {
				return nil
			}
			close(w.done)
			for _, then := range w.then {
				then()
			}
			if s.waiting[spi] == w {
				delete(s.waiting, spi)
			}
			return s.machine.Installed(spi, w.err, now)
		})
	}
	for _, outbound := range []bool{false, true} {
		if outbound && a.Outbound || !outbound && a.Inbound {
			w.left++
			s.Objects.Put(association(a.Child, outbound, labelled), result)
		}
	}
	s.waiting[spi] = w
}

// post sends packets, in their order, when their records are on the disk. A packet that waits for the data plane holds up no other one.
func (s *serving) post(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	// The disk does not have all records of packets before: of a message in fragments no other one is sent, and it is not sent again.
	behind := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.posted:
		}
		s.mu.Lock()
		all := s.outbox
		s.outbox = nil
		s.mu.Unlock()
		for _, one := range all {
			if behind {
				one.records = append(one.records, s.Records.Put())
			}
			kept := true
			for _, r := range one.records {
				if err := r.Wait(); err != nil {
					if kept = false; !behind {
						s.Log.Error("no IKE packet is sent: message IDs cannot be written to disk", "error", err)
					}
				}
			}
			switch behind = !kept; {
			case !kept:
				s.drops.WithLabelValues("not-kept").Inc()
			case len(one.after) > 0:
				group.Add(1)
				go func() {
					defer group.Done()
					timer := time.NewTimer(patience)
					defer timer.Stop()
					for _, done := range one.after {
						select {
						case <-done:
						case <-timer.C:
						case <-ctx.Done():
							return
						}
					}
					s.send(one)
				}()
			default:
				s.send(one)
			}
		}
	}
}

func (s *serving) send(one outgoing) {
	if err := s.Packets.Send(one.plane, one.packet); err != nil {
		s.drops.WithLabelValues("not-sent").Inc()
		s.Log.Debug("a packet is not sent", "dataplane", one.plane, "error", err)
	}
}

// ask answers a question of the machine.
func (s *serving) ask(a Ask) {
	answer := func(answer any) {
		s.locked(func(now time.Time) []Action { return s.machine.Answered(a.Token, answer, now) })
	}
	switch q := a.Question.(type) {
	case VerifyChain:
		authorities, _ := q.Trust.([]*Authority)
		answered := func(t *trusted, err error) {
			if err == nil {
				err = t.inForce(authorities, time.Now())
			}
			if err != nil {
				answer(Verified{Err: err})
				return
			}
			answer(Verified{Key: t.key})
		}
		if err := s.verifications.submit(q.Remote, func() {
			t, err := trust(authorities, q.Chain, q.Identity, time.Now())
			if err == nil && q.Proof != nil {
				err = q.Proof(t.key)
			}
			if err != nil {
				answered(nil, err)
				return
			}
			// It may ask a responder.
			s.background(func(context.Context) { answered(t, nil) })
		}); err != nil {
			answered(nil, err)
		}
	case LeaseAddress:
		// It may wait for the allocator.
		s.background(func(ctx context.Context) {
			l := s.lease(ctx, q)
			s.locked(func(now time.Time) []Action {
				if s.machine.asked[a.Token] == nil {
					s.release(q.Lease, subscriber.LostCarrier) // the user is gone
				}
				return s.machine.Answered(a.Token, l, now)
			})
		})
	case EAPStep:
		s.mu.Lock()
		talk := s.talks[q.Conversation]
		if talk == nil && s.machine.asked[a.Token] != nil {
			talk = s.converse(q)
			s.talks[q.Conversation] = talk
		}
		s.mu.Unlock()
		if talk == nil {
			return // the IKE SA is gone
		}
		talk.Next(q.Packet, func(step eap.Step) {
			answer(EAPAnswer{Packet: step.Packet, Success: step.Success, MSK: step.MSK, Username: step.Username, Addresses: step.Addresses, Pools: step.Pools, Grant: step.Grant, Err: step.Err, Failure: step.Failure})
		})
	}
}

// converse begins a conversation by EAP with a remote user. s.mu is held.
func (s *serving) converse(q EAPStep) eap.Conversation {
	if c := s.machine.connections[q.Connection]; c != nil {
		switch c.EAPMethod {
		case TLS:
			return s.converseTLS(c, q.Remote.Addr())
		case RADIUS:
			return eap.NewRelayed(relay{s}, eap.RelayRequest{Profile: c.RadiusProfile, ID: leaseID(q.Conversation), Calling: q.Remote.Addr(), Called: c.Local, MTU: relayMTU})
		}
	}
	return eap.NewMSCHAPv2("sluice", func(username string) (password string, known bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		u := s.user(username)
		return u.GetPassword(), !u.GetDisabled() && u.GetPassword() != ""
	})
}
