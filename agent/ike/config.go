// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// Connections as objects say them.

const (
	defaultIKE       = "aes256gcm16-prfsha256-x25519"
	defaultESP       = "aes256gcm16-x25519"
	defaultRekey     = 4 * time.Hour
	defaultChild     = time.Hour
	defaultDPD       = 30 * time.Second
	defaultKeepAlive = 20 * time.Second
)

var errNoSharedKey = errors.New("has no shared key: set its sharedKey")

// connectionOf translates an IkeConnection. credential and authorities are those that it names; read reads files.
func connectionOf(name, dataplane string, spec *api.IkeConnection, credential *api.IkeCredential, authorities []*Authority, read func(path string) (string, error)) (*Connection, error) {
	c := &Connection{Name: name, Dataplane: dataplane, VRF: cmp.Or(spec.GetVrf(), "default"), Trust: authorities, Pools: spec.GetPools(), Secret: []byte(credential.GetSharedKey()),
		PPK: []byte(credential.GetPpk()), PPKID: credential.GetPpkId(), PPKMandatory: credential.GetPpkRequired(),
		RekeyTime: cmp.Or(time.Duration(spec.GetRekeyTime()), defaultRekey), ReauthTime: time.Duration(spec.GetReauthTime()),
		DPDDelay: cmp.Or(time.Duration(spec.GetDpdDelay()), defaultDPD), KeepAlive: defaultKeepAlive, ForceEncapsulation: spec.GetForceEncapsulation(),
		NoFragmentation: spec.GetNoFragmentation(), NoMOBIKE: spec.GetNoMobike(), AllowSHA1: spec.GetAllowSha1(), RedirectTo: spec.GetRedirect(), Resumption: spec.GetResumption(),
		EAPMethod: EAPMethod(spec.GetEapMethod()), RadiusProfile: cmp.Or(spec.GetRadiusProfile(), spec.GetSubscriberProfile()), Profile: spec.GetSubscriberProfile(),
		LocalMethod: methodOf(spec.GetLocalAuthentication()), RemoteMethod: methodOf(spec.GetRemoteAuthentication())}
	if c.Resumption && c.Profile != "" {
		return nil, errors.New("resumption: the users of a subscriberProfile authenticate each time: leave out resumption or subscriberProfile")
	}
	var err error
	if c.Local, err = netip.ParseAddr(spec.GetLocalAddress()); err != nil {
		return nil, fmt.Errorf("localAddress: %w", err)
	}
	if text := spec.GetRemoteAddress(); text != "" {
		if c.Remote, err = netip.ParseAddr(text); err != nil {
			return nil, fmt.Errorf("remoteAddress: %w", err)
		}
	}
	for _, text := range spec.GetOtherLocalAddresses() {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("otherLocalAddresses: %w", err)
		}
		c.OtherLocals = append(c.OtherLocals, a)
	}
	for _, text := range spec.GetPeerNetworks() {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("peerNetworks: %w", err)
		}
		c.Peers = append(c.Peers, p)
	}
	if c.LocalID, err = ParseIdentity(spec.GetLocalIdentity()); err != nil {
		return nil, fmt.Errorf("localIdentity: %w", err)
	}
	if c.RemoteID, err = ParseIdentity(spec.GetRemoteIdentity()); err != nil {
		return nil, fmt.Errorf("remoteIdentity: %w", err)
	}
	if c.Proposals, err = proposalsOf(message.ProtocolIKE, spec.GetProposals(), defaultIKE); err != nil {
		return nil, fmt.Errorf("proposals: %w", err)
	}
	if c.Credential, err = certificateOf(spec.GetCredential(), credential, read); err != nil {
		return nil, fmt.Errorf("credential: %w", err)
	}
	switch {
	case c.LocalMethod == Certificate && c.Credential == nil:
		return nil, fmt.Errorf("credential: IkeCredential/%s has no certificate: set its certificateFile", spec.GetCredential())
	case c.usesMethod(SharedKey) && len(c.Secret) == 0:
		return nil, fmt.Errorf("credential: IkeCredential/%s %w", spec.GetCredential(), errNoSharedKey)
	}
	for _, a := range authorities {
		c.Authorities = append(c.Authorities, a.keyHash()...)
		c.Revocation = append(c.Revocation, a.revocation()...)
	}
	for _, one := range spec.GetChildren() {
		child := &Child{Name: one.GetName(), Transport: one.GetMode() == api.SecurityMode_TRANSPORT_MODE, StartAction: ChildAction(one.GetStart()),
			CloseAction: ChildAction(one.GetOnClose()), DPDAction: ChildAction(one.GetOnDeadPeer()), RekeyTime: cmp.Or(time.Duration(one.GetRekeyTime()), defaultChild),
			Serves: Serves{one.GetTunnel(), one.GetPolicy(), one.GetReplayWindow(), one.GetRekeyBytes(), one.GetRekeyPackets()}}
		// A child that no rekey replaces ends.
		child.LifeTime = child.RekeyTime + child.RekeyTime/10
		if child.Proposals, err = proposalsOf(message.ProtocolESP, one.GetProposals(), defaultESP); err != nil {
			return nil, fmt.Errorf("children %s: proposals: %w", one.GetName(), err)
		}
		for _, side := range []struct {
			texts []string
			to    *[]message.Selector
		}{{one.GetLocal(), &child.Local}, {one.GetRemote(), &child.Remote}} {
			for _, text := range side.texts {
				p, err := netip.ParsePrefix(text)
				if err != nil {
					return nil, fmt.Errorf("children %s: %w", one.GetName(), err)
				}
				*side.to = append(*side.to, SelectorOf(p))
			}
		}
		c.Children = append(c.Children, child)
	}
	if len(c.Children) == 0 {
		return nil, errors.New("there are no children")
	}
	return c, nil
}

// frozenOf is a connection without its credentials.
func frozenOf(name, dataplane string, spec *api.IkeConnection) (*Connection, error) {
	bare := proto.CloneOf(spec)
	bare.LocalAuthentication, bare.RemoteAuthentication, bare.Authorities = api.IkeAuthentication_SHARED_KEY, api.IkeAuthentication_SHARED_KEY, nil
	c, err := connectionOf(name, dataplane, bare, &api.IkeCredential{SharedKey: "none"}, nil, nil)
	if err == nil {
		c.Frozen, c.Secret, c.RemoteMethod = true, nil, methodOf(spec.GetRemoteAuthentication())
	}
	return c, err
}

func methodOf(a api.IkeAuthentication) Method {
	switch a {
	case api.IkeAuthentication_CERTIFICATE:
		return Certificate
	case api.IkeAuthentication_EAP:
		return EAP
	}
	return SharedKey
}

func proposalsOf(protocol message.Protocol, texts []string, usual string) (all []message.Proposal, err error) {
	if len(texts) == 0 {
		texts = []string{usual}
	}
	for _, text := range texts {
		p, err := suite.ParseProposal(protocol, text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
