// SPDX-License-Identifier: Apache-2.0

// Package subscriber is the common part of all access protocols: authentication, grants, sessions and accounting of subscribers.
//
//	access (agent/pppoe, agent/ipoe)        this package                 back ends (agent/radius, local users)
//	  Manager.Authenticate  ------------->  asks a back end  ----------->  Authenticator.Authenticate
//	                        <-- Decision --                   <-- Answer --
//	  Manager.Connect       ------------->  addresses from pools, a Session in the data plane, a durable record
//	                        <-- Lease ----                    ----------->  Accountant.Account (start)
//	  Manager.Disconnect    ------------->  last counters                  Accountant.Account (stop)
//	  Access.Terminate      <-------------  timeouts, Disconnect-Request, an operator
//
// No call blocks: slow calls call back, from any goroutine, once.
package subscriber

import (
	"errors"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/api"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Circuit is where packets of a subscriber come in: a port of a data plane and up to two VLAN tags; zero: no tag.
type Circuit struct {
	Dataplane, Port      string
	OuterVLAN, InnerVLAN uint16
}

// Line is a subscriber's line as the access protocol sees it.
type Line struct {
	Circuit
	MAC MAC
	// Of RFC 3046 or of the Broadband Forum's PPPoE tags (TR-101, RFC 4679); nil: none.
	CircuitID, RemoteID []byte
	// Other line attributes of RFC 4679 (actual data rates and so on), by sub-option.
	Attributes map[uint8][]byte
	// Outer address of a remote user of IKE, whose Port is the name of the IkeConnection; the zero Addr: the subscriber has a line.
	Caller netip.Addr
}

// Credentials are a subscriber's proof of identity. Exactly one method is used; none: the line identifies the subscriber.
type Credentials struct {
	Username string
	// PAP (RFC 1334).
	Password []byte
	// CHAP with MD5 (RFC 1994).
	CHAP *CHAP
	// MS-CHAPv2 (RFC 2759).
	MSCHAPv2 *MSCHAPv2
}

// CHAP is a challenge of ours and the answer to it.
type CHAP struct {
	Identifier byte
	Challenge  []byte
	Response   [16]byte
}

// MSCHAPv2 is a challenge of ours and the answer to it.
type MSCHAPv2 struct {
	Identifier             byte
	AuthenticatorChallenge [16]byte
	PeerChallenge          [16]byte
	Response               [24]byte
}

// Request asks back ends to authenticate and authorize a subscriber.
type Request struct {
	// The access protocol: "pppoe", "dhcp4", "dhcp6", "dhcp-relay", "first-packet", "ike".
	Protocol string
	// SubscriberProfile by which the line is served.
	Profile string
	// The same in all accounting records of the session; unique over restarts.
	ID   string
	Line Line
	Credentials
	// Of PPPoE: Service-Name; of DHCP: option 60.
	Service string
	// The PPPoE session identifier, for NAS-Port; 0: none.
	PPPoESessionID uint16

	// As in the Answer of the back ends before.
	checked bool
}

// Errors that the Manager and back ends give, to be tested with errors.Is.
var (
	// ErrUnknownUser, of a back end: it does not know the user. The next one of the profile is asked.
	ErrUnknownUser = errors.New("unknown user")
	// ErrUnavailable, of a back end: it has no answer. The next one of the profile is asked.
	ErrUnavailable = errors.New("no answer from the back end")
	// ErrRejected, of the Manager: no back end accepts the subscriber.
	ErrRejected = errors.New("rejected")
	// ErrExhausted: no address is free in the pools.
	ErrExhausted = errors.New("address pool exhausted")
	// ErrNoAddress: the profile has no pools of the families of a session that needs an address.
	ErrNoAddress = errors.New("no address")
	// ErrNoGateway: a session that needs a gateway would have an IPv4 address without one.
	ErrNoGateway = errors.New("no gateway")
	// ErrAddressInUse: the address that a grant names is another subscriber's.
	ErrAddressInUse = errors.New("address in use")
	// ErrLimit: the profile allows no more sessions of the MAC, the circuit or the user.
	ErrLimit = errors.New("too many sessions")
	// ErrNoSession: no session matches, or it has ended.
	ErrNoSession = errors.New("no such session")
	// ErrTooManySessions: more than MaxSelected sessions match. None of them changes.
	ErrTooManySessions = errors.New("too many sessions match")
	// ErrNoProfile: there is no SubscriberProfile of the name.
	ErrNoProfile = errors.New("no such SubscriberProfile")
	// ErrMoved: the profile of the line has another kind of service (BNG, AGF) than the grant.
	ErrMoved = errors.New("another service")
	// ErrNoPortal: there is no Portal of the name, or with the host of the URL.
	ErrNoPortal = errors.New("no such Portal")
	// ErrUnpairedQos: queues need a QosProfile and a QosGroup, from the grant or the profile.
	ErrUnpairedQos = errors.New("a QosProfile without a QosGroup, or a QosGroup without a QosProfile")
	// ErrNotForwarding: the data plane does not forward for the session: it is away, or the session names an object that does not exist.
	ErrNotForwarding = errors.New("the data plane does not forward for the session")
	// ErrNotChanged: the data plane keeps the session as it was.
	ErrNotChanged = errors.New("the data plane is away, or the change names an object that does not exist")
)

// Clear, in a text of the Grant of Change, makes the field empty: it lifts the redirect of a walled garden, for example.
const Clear = "-"

// Never, in a time of a Grant: there is none, even if the profile or an earlier grant has one.
const Never time.Duration = -1

// Answer is a back end's.
type Answer struct {
	// Nil: accepted.
	Reject error
	// For the subscriber: Reply-Message, or the message of MS-CHAPv2's success ("S=...") or failure ("E=691 R=0 ...").
	Message string
	Grant   Grant

	// A back end that knows the subscriber has accepted it: not "none", and not a 5G core.
	checked bool
}

// Grant is the authorization of a subscriber. For a zero field, the SubscriberProfile decides.
type Grant struct {
	// Name of the subscriber as the back end knows him; empty: as he calls himself.
	Username string
	VRF      string
	// An address for this subscriber, or pools to take one from, in the order in which they are tried.
	IPv4      netip.Addr
	IPv4Pools []string
	// Prefix of the link (SLAAC, Framed-IPv6-Prefix), address (IA_NA, Framed-IPv6-Address), and prefix for the home (IA_PD).
	IPv6Prefix, Delegated     netip.Prefix
	IPv6                      netip.Addr
	IPv6Pools, DelegatedPools []string
	InterfaceID               [8]byte
	Routes                    []netip.Prefix
	// Networks that router advertisements have routes to (RFC 4191).
	Announced                   []netip.Prefix
	DNS                         []netip.Addr
	SessionTimeout, IdleTimeout time.Duration
	InterimInterval             time.Duration
	ACLUp, ACLDown              string
	MeterUp, MeterDown          string
	RateUp, RateDown            Rate
	QosProfile, QosGroup        string
	QosProfileUp, QosGroupUp    string
	FlowProfile                 string
	MSS, MTU                    uint32
	// SubscriberProfile instead of the one of the Request.
	Profile string
	// Walled garden: the name of a Portal, or a URL, of which the Portal with the same host is taken; empty: the profile's, or none; Clear: none.
	Redirect string
	// Tunnel to a UPF; nil: the session is routed in its VRF.
	Core *api.Gtpu
	// Returned in accounting and in Access-Requests of the same session, as they came.
	Class [][]byte
	State []byte
	// Of the Manager: the agent accepted the subscriber, not a back end elsewhere.
	Local bool
	// Of the Manager: the back end had credentials, of the subscriber or of the line's profile.
	Proved bool
}

// Rate is a policer's, in bits a second, with bursts in bytes; 0: unlimited, or a burst that follows from the rate.
type Rate struct {
	BitsPerSecond, PeakBitsPerSecond uint64
	BurstBytes, PeakBurstBytes       uint64
}

// Lease is the addresses of a connected subscriber.
type Lease struct {
	// The Session object.
	Session               string
	VRF                   string
	IPv4                  netip.Addr
	IPv6                  netip.Addr
	IPv6Prefix, Delegated netip.Prefix
	DNS                   []netip.Addr
	Announced             []netip.Prefix
	// Our address on the subscriber's link: gateway and IPCP address.
	Gateway netip.Addr
	// Network of the pool that the IPv4 address is in, as the pool writes it; the zero Prefix: a range, or no pool.
	Network        netip.Prefix
	SessionTimeout time.Duration
	MTU            uint32
	// The walled garden that the subscriber is in: a Portal.
	Portal string
}

// Connection asks for a session.
type Connection struct {
	Request
	// Of the Decision.
	Grant Grant
	// Which families the access protocol negotiates.
	IPv4, IPv6 bool
	// How the data plane recognises the session.
	Access *api.Access
	// The largest packet that the access carries, if that is less than the port's; 0: as the port. The session's MTU is at most that.
	MTU uint32
	// A DHCP server assigned the addresses: those of Grant are all, and pools give none.
	AssignedElsewhere bool
	// Addresses that the subscriber declined because another host uses them, in the function of Extend alone: they go back to their pools, which
	// do not keep them for this subscriber.
	Declined Declined
	// Of Connect: without these the session would be of no use, and is refused.
	Needs Needs
	// State of the access protocol for a restart of the agent: kept with the session and passed to Restore.
	State []byte
}

// Needs are an address of any family (ErrNoAddress), and a gateway beside an IPv4 address (ErrNoGateway).
type Needs struct{ Address, Gateway bool }

// Declined is addresses of a session, of DHCP and of IA_NA.
type Declined struct{ IPv4, IPv6 bool }

// MaxSelected is how many sessions one Change or Terminate may have.
const MaxSelected = 1024

// Manager is the interface for access protocols. The service "subscriber" offers it (service.Offer); they find it
// with service.Find.
type Manager interface {
	// Authenticate asks the back ends of the profile in turn. done is called once.
	Authenticate(r Request, done func(Answer))
	// Connect assigns addresses and creates the Session. done is called when the data plane forwards for it and its
	// record is on disk, or with the error.
	Connect(c Connection, done func(Lease, error))
	// Extend changes a session while it is up: families that come later (IPv6CP after IPCP, DHCPv6-PD).
	Extend(id string, change func(*Connection), done func(Lease, error))
	// Lease returns the lease of a session that is up as it is now: its profile, its pools and a CoA change it.
	Lease(id string) (Lease, bool)
	// Moves reports whether a profile gives the line of a session that is up another kind of service than the session has: a tunnel to a 5G core, or none.
	// The subscriber is to dial in anew.
	Moves(id, profile string) bool
	// Serve says that another profile serves the line of a session: its server changed. A session that moves by it ends. Others keep the policy of their
	// profile until they dial in anew.
	Serve(id, profile string)
	// Keep keeps the access protocol's own state of a session that is up, and changes nothing else. done is called when the disk has it, or with
	// the error.
	Keep(id string, state []byte, done func(error))
	// Disconnect ends a session and accounts for it. It may be called for a session that is being connected.
	Disconnect(id string, cause Cause)
	// Attach registers an access protocol. It gets its sessions from before a restart first, then Restored is called.
	Attach(protocol string, a Access)
	// Use makes a back end known; nil takes it away. Profiles name it: "radius", "local".
	Use(name string, a Authenticator, c Accountant)
	// Change applies a CoA to the sessions that match any of which, and returns their number. Zero fields of the grant do not change. If the change of one
	// session fails, all of them get their earlier grant back before done is called.
	Change(which []Match, change Grant, done func(int, error))
	// Terminate ends the sessions that match any of which, as Access.Terminate would. text is for the subscribers; "": none. done, which may be nil,
	// gets their number once the disk has their ends.
	Terminate(which []Match, cause Cause, text string, done func(int, error))
}

// Gardens reports which walled garden the subscriber of a session is in. The service "subscriber" offers it.
type Gardens interface {
	// Garden of a Session object; the zero value: none.
	Garden(session string) Garden
}

// Garden is a walled garden and its subscribers.
type Garden struct {
	Portal string
	// In place of the Portal's, from a back end; empty: the Portal's.
	URL           string
	MAC, Username string
}

// Access is the Manager's interface to an access protocol.
type Access interface {
	Restore(c Connection, l Lease)
	Restored()
	// Terminate ends the subscriber's connection, and tells him text if the protocol can. The Manager has disconnected the session already.
	Terminate(id string, cause Cause, text string)
}

// Authenticator knows subscribers.
type Authenticator interface {
	Authenticate(r Request, done func(Answer))
}

// Accountant takes records, in order; it keeps those that it cannot deliver. When Account returns, the record must be in the durable log, be
// it not on the disk yet: the Manager then forgets the session, in the same log. After a crash, Account may get a Stop again whose record
// the Accountant has in its log, or a record of a session whose Start it never got: ID and Kind tell.
type Accountant interface {
	Account(r Record)
}

// Resumer is an Accountant that gets each session that was up before the agent started, once, before other records of it: r is the session's
// Start. The agent may have been killed before the Accountant had the Start in its log: Resume then makes up for it.
type Resumer interface {
	Resume(r Record)
}

// RecordKind is the type of a record.
type RecordKind uint8

// The records of a session (RFC 2866 section 5.1).
const (
	Start RecordKind = iota + 1
	Interim
	Stop
)

// Record is an accounting record.
type Record struct {
	Kind  RecordKind
	At    time.Time
	Since time.Time
	Request
	Grant Grant
	Lease Lease
	// From the subscriber and to him, as the data plane counted.
	UpPackets, UpBytes, DownPackets, DownBytes uint64
	Cause                                      Cause
}

// Match selects sessions: all fields that are not zero must agree.
type Match struct {
	ID, Session, Username, Dataplane, Port string
	CallingStationID                       string
	CircuitID, RemoteID                    string
	MAC                                    MAC
	IPv4, IPv6                             netip.Addr
	// The prefix of the link, and the one for the home.
	Prefix, Delegated netip.Prefix
	// That a back end granted.
	InterfaceID [8]byte
	VRF         string
	// If more than one session matches, none does: the selectors are to tell it from all others.
	One bool
	// Of these profiles; nil: of any. It selects no session by itself.
	Of *Profiles
}

// Profiles are SubscriberProfiles. Has calls nothing of the Manager.
type Profiles struct{ Has func(name string) bool }

// Cause is why a session ends, with the numbers of Acct-Terminate-Cause (RFC 2866 section 5.10).
type Cause uint32

// Causes.
const (
	UserRequest        Cause = 1
	LostCarrier        Cause = 2
	LostService        Cause = 3
	IdleTimeout        Cause = 4
	SessionTimeout     Cause = 5
	AdminReset         Cause = 6
	AdminReboot        Cause = 7
	PortError          Cause = 8
	NASError           Cause = 9
	NASRequest         Cause = 10
	NASReboot          Cause = 11
	PortUnneeded       Cause = 12
	PortPreempted      Cause = 13
	PortSuspended      Cause = 14
	ServiceUnavailable Cause = 15
	Callback           Cause = 16
	UserError          Cause = 17
	HostRequest        Cause = 18
)
