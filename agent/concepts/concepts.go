// SPDX-License-Identifier: Apache-2.0

// Package concepts lists the concepts that have rules, one line each, and makes the registry of all kinds.
package concepts

import (
	"google.golang.org/protobuf/reflect/protoregistry"

	acl "sluice.dev/sluice/agent/acl/rules"
	agf "sluice.dev/sluice/agent/agf/rules"
	dhcp "sluice.dev/sluice/agent/dhcp/rules"
	ether "sluice.dev/sluice/agent/ether/rules"
	fib "sluice.dev/sluice/agent/fib/rules"
	fivewe "sluice.dev/sluice/agent/fivewe/rules"
	flow "sluice.dev/sluice/agent/flow/rules"
	gre "sluice.dev/sluice/agent/gre/rules"
	gtpu "sluice.dev/sluice/agent/gtpu/rules"
	hqos "sluice.dev/sluice/agent/hqos/rules"
	ike "sluice.dev/sluice/agent/ike/rules"
	ipoe "sluice.dev/sluice/agent/ipoe/rules"
	ipsec "sluice.dev/sluice/agent/ipsec/rules"
	meter "sluice.dev/sluice/agent/meter/rules"
	n2 "sluice.dev/sluice/agent/n2/rules"
	n3iwf "sluice.dev/sluice/agent/n3iwf/rules"
	"sluice.dev/sluice/agent/object"
	port "sluice.dev/sluice/agent/port/rules"
	portal "sluice.dev/sluice/agent/portal/rules"
	pppoe "sluice.dev/sluice/agent/pppoe/rules"
	punt "sluice.dev/sluice/agent/punt/rules"
	radius "sluice.dev/sluice/agent/radius/rules"
	session "sluice.dev/sluice/agent/session/rules"
	subscriber "sluice.dev/sluice/agent/subscriber/rules"
)

var concepts = [][]object.KindRules{
	acl.Rules,
	agf.Rules,
	dhcp.Rules,
	ether.Rules(ipsec.InterfaceType),
	fib.Rules,
	fivewe.Rules,
	flow.Rules,
	gre.Rules,
	gtpu.Rules,
	hqos.Rules,
	ike.Rules,
	ipoe.Rules,
	ipsec.Rules,
	meter.Rules,
	n2.Rules,
	n3iwf.Rules,
	port.Rules,
	portal.Rules,
	pppoe.Rules,
	punt.Rules,
	radius.Rules,
	session.Rules(fivewe.Access, pppoe.Access),
	subscriber.Rules,
}

// NewRegistry returns the kinds that this program was built with, and their rules.
func NewRegistry() (*object.Registry, error) { return Discover(protoregistry.GlobalTypes) }

// Discover returns the kinds among the types, and the rules of the concepts.
func Discover(types *protoregistry.Types) (*object.Registry, error) {
	return object.Discover(types, concepts...)
}
