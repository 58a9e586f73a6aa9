// SPDX-License-Identifier: Apache-2.0

package aka

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
)

var (
	// ErrMAC: AUTN is not of the subscriber's home network (5GMM cause 20).
	ErrMAC = errors.New("AUTN has another MAC")
	// ErrSeparation: AUTN's separation bit is 0 (5GMM cause 26).
	ErrSeparation = errors.New("the separation bit of AUTN is 0")
	// ErrSynch: the sequence number of AUTN is not fresh (5GMM cause 21). AUTS is the answer.
	ErrSynch = errors.New("the sequence number of AUTN was used before")
)

// sequence numbers: their last bits are an index into an array (TS 33.102 annex C.3.2).
const indexBits = 5

// USIM is a subscriber's. Its methods are called one at a time.
type USIM struct {
	*Milenage
	// SQN is the greatest sequence number that was accepted, of each index.
	SQN [1 << indexBits]uint64
}

// Result of an AUTN that was accepted.
type Result struct {
	RES    [8]byte
	CK, IK [16]byte
	SQNxAK [6]byte
}

// Authenticate checks AUTN (TS 33.102 section 6.3.3). separated: the separation bit must be set, as in all 5G authentications (TS 33.501 section 6.1.3).
// auts comes with ErrSynch.
func (u *USIM) Authenticate(rand, autn [16]byte, separated bool) (result Result, auts [14]byte, err error) {
	res, ck, ik, ak := u.F2345(rand)
	result = Result{RES: res, CK: ck, IK: ik, SQNxAK: [6]byte(autn[:6])}
	var sqn [6]byte
	subtle.XORBytes(sqn[:], autn[:6], ak[:])
	mac, _ := u.F1(rand, sqn, [2]byte(autn[6:8]))
	switch {
	case subtle.ConstantTimeCompare(mac[:], autn[8:]) != 1:
		return Result{}, auts, ErrMAC
	case separated && autn[6]&0x80 == 0:
		return Result{}, auts, ErrSeparation
	}
	number := numberOf(sqn)
	index := number & (1<<indexBits - 1)
	if number <= u.SQN[index] {
		return Result{}, u.auts(rand), ErrSynch
	}
	u.SQN[index] = number
	return result, auts, nil
}

func numberOf(sqn [6]byte) uint64 {
	return uint64(binary.BigEndian.Uint16(sqn[:]))<<32 | uint64(binary.BigEndian.Uint32(sqn[2:]))
}

// Sequence is a sequence number as octets.
func Sequence(number uint64) (sqn [6]byte) {
	var octets [8]byte
	binary.BigEndian.PutUint64(octets[:], number)
	return [6]byte(octets[2:])
}

// Greatest sequence number that was accepted.
func (u *USIM) Greatest() (number uint64) {
	for _, one := range u.SQN {
		number = max(number, one)
	}
	return number
}

// Restore takes all sequence numbers up to one as used.
func (u *USIM) Restore(greatest uint64) {
	for i := range u.SQN {
		u.SQN[i] = greatest
	}
}

// auts reports the greatest sequence number to the home network (TS 33.102 section 6.3.3), with AMF 0.
func (u *USIM) auts(rand [16]byte) (auts [14]byte) {
	sqn := Sequence(u.Greatest())
	ak := u.F5Star(rand)
	_, mac := u.F1(rand, sqn, [2]byte{})
	subtle.XORBytes(auts[:6], sqn[:], ak[:])
	copy(auts[6:], mac[:])
	return auts
}
