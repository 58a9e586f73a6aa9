// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"sync"

	"github.com/cloudflare/circl/dh/x448"
	smecdh "github.com/emmansun/gmsm/ecdh"
)

// ErrPublicValue: the peer sent no valid public value of the method.
var ErrPublicValue = errors.New("invalid public value")

// Exchange is a key exchange that we have begun.
type Exchange struct {
	Group  uint16
	Public []byte
	// The secret exponent, for Restore.
	Secret []byte
	finish func(peer []byte) ([]byte, error)
}

// Finish computes the shared secret from the responder's value.
func (e *Exchange) Finish(peer []byte) ([]byte, error) { return e.finish(peer) }

// Begin begins a key exchange as its initiator.
func Begin(group uint16) (*Exchange, error) { return begin(group, nil) }

// Restore returns a key exchange that another process began, with its Secret.
func Restore(group uint16, secret []byte) (*Exchange, error) {
	if len(secret) == 0 {
		return nil, errors.New("the key exchange has no secret")
	}
	return begin(group, secret)
}

// begin begins a key exchange, with a new secret if there is none.
func begin(group uint16, secret []byte) (*Exchange, error) {
	e := &Exchange{Group: group, Secret: secret}
	var err error
	switch group {
	case MODP2048, MODP3072, MODP4096, MODP6144, MODP8192:
		err = e.modp()
	case ECP256:
		err = e.curve(ecdh.P256())
	case ECP384:
		err = e.curve(ecdh.P384())
	case ECP521:
		err = e.curve(ecdh.P521())
	case X25519:
		err = e.curve(ecdh.X25519())
	case X448:
		err = e.x448()
	case SM2:
		err = e.sm2()
	case MLKEM768:
		var key *mlkem.DecapsulationKey768
		if secret == nil {
			key, err = mlkem.GenerateKey768()
		} else {
			key, err = mlkem.NewDecapsulationKey768(secret)
		}
		if err == nil {
			e.Secret, e.Public = key.Bytes(), key.EncapsulationKey().Bytes()
			e.finish = func(peer []byte) ([]byte, error) {
				shared, err := key.Decapsulate(peer)
				if err != nil {
					return nil, fmt.Errorf("%w: %v", ErrPublicValue, err)
				}
				return shared, nil
			}
		}
	default:
		err = fmt.Errorf("key exchange method %d is not known", group)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Respond answers a key exchange: it returns our public value and the shared secret.
func Respond(group uint16, peer []byte) (public, shared []byte, err error) {
	if group == MLKEM768 {
		key, err := mlkem.NewEncapsulationKey768(peer)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %v", ErrPublicValue, err)
		}
		shared, public = key.Encapsulate()
		return public, shared, nil
	}
	e, err := Begin(group)
	if err != nil {
		return nil, nil, err
	}
	shared, err = e.Finish(peer)
	return e.Public, shared, err
}

func (e *Exchange) curve(c ecdh.Curve) error {
	key, err := c.NewPrivateKey(e.Secret)
	if e.Secret == nil {
		key, err = c.GenerateKey(rand.Reader)
	}
	if err != nil {
		return err
	}
	e.Secret, e.Public = key.Bytes(), key.PublicKey().Bytes()
	prefixed := c != ecdh.X25519()
	if prefixed {
		// RFC 5903 section 7: x | y, without the byte for an uncompressed point.
		e.Public = e.Public[1:]
	}
	e.finish = func(peer []byte) ([]byte, error) {
		if prefixed {
			peer = append([]byte{4}, peer...)
		}
		public, err := c.NewPublicKey(peer)
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrPublicValue, err)
		}
		shared, err := key.ECDH(public)
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrPublicValue, err)
		}
		return shared, nil
	}
	return nil
}

func (e *Exchange) sm2() error {
	c := smecdh.P256()
	key, err := c.NewPrivateKey(e.Secret)
	if e.Secret == nil {
		key, err = c.GenerateKey(rand.Reader)
	}
	if err != nil {
		return err
	}
	e.Secret, e.Public = key.Bytes(), key.PublicKey().Bytes()[1:]
	e.finish = func(peer []byte) ([]byte, error) {
		public, err := c.NewPublicKey(append([]byte{4}, peer...))
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrPublicValue, err)
		}
		shared, err := key.ECDH(public)
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrPublicValue, err)
		}
		return shared, nil
	}
	return nil
}

func (e *Exchange) x448() error {
	var secret, public x448.Key
	if e.Secret == nil {
		if _, err := rand.Read(secret[:]); err != nil {
			return err
		}
	} else if copy(secret[:], e.Secret) != len(secret) || len(e.Secret) != len(secret) {
		return fmt.Errorf("a secret of %d bytes", len(e.Secret))
	}
	x448.KeyGen(&public, &secret)
	e.Secret, e.Public = secret[:], public[:]
	e.finish = func(peer []byte) ([]byte, error) {
		var shared, other x448.Key
		if len(peer) != len(other) {
			return nil, fmt.Errorf("%w: %d bytes", ErrPublicValue, len(peer))
		}
		copy(other[:], peer)
		if !x448.Shared(&shared, &secret, &other) {
			return nil, fmt.Errorf("%w: a point of low order", ErrPublicValue)
		}
		return shared[:], nil
	}
	return nil
}

// Bits of the secret exponents: twice the strength of the largest group (RFC 3526 section 8).
const exponentBits = 640

func (e *Exchange) modp() error {
	prime := modpPrimes()[e.Group]
	length := (prime.BitLen() + 7) / 8
	secret := new(big.Int).SetBytes(e.Secret)
	if e.Secret == nil {
		var err error
		if secret, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), exponentBits)); err != nil {
			return err
		}
		secret.SetBit(secret, exponentBits, 1)
		e.Secret = secret.Bytes()
	}
	e.Public = new(big.Int).Exp(big.NewInt(2), secret, prime).FillBytes(make([]byte, length))
	e.finish = func(peer []byte) ([]byte, error) {
		public := new(big.Int).SetBytes(peer)
		// RFC 6989 section 2.1.
		if len(peer) != length || public.Cmp(big.NewInt(1)) <= 0 || public.Cmp(new(big.Int).Sub(prime, big.NewInt(1))) >= 0 {
			return nil, fmt.Errorf("%w: out of range", ErrPublicValue)
		}
		return public.Exp(public, secret, prime).FillBytes(make([]byte, length)), nil
	}
	return nil
}

// modpPrimes are 2^n - 2^(n-64) - 1 + 2^64 * (floor(2^(n-130) pi) + k) of RFC 3526.
var modpPrimes = sync.OnceValue(func() map[uint16]*big.Int {
	primes := map[uint16]*big.Int{}
	pi := piTimes(8192)
	for id, of := range map[uint16]struct {
		bits uint
		k    int64
	}{MODP2048: {2048, 124476}, MODP3072: {3072, 1690314}, MODP4096: {4096, 240904}, MODP6144: {6144, 929484}, MODP8192: {8192, 4743158}} {
		power := func(n uint) *big.Int { return new(big.Int).Lsh(big.NewInt(1), n) }
		middle := new(big.Int).Rsh(pi, 8192-(of.bits-130))
		middle.Add(middle, big.NewInt(of.k)).Lsh(middle, 64)
		p := new(big.Int).Sub(power(of.bits), power(of.bits-64))
		primes[id] = p.Sub(p, big.NewInt(1)).Add(p, middle)
	}
	return primes
})

// piTimes returns floor(pi * 2^bits), by Machin's formula.
func piTimes(bits uint) *big.Int {
	const guard = 64
	one := new(big.Int).Lsh(big.NewInt(1), bits+guard)
	arctangent := func(x int64) *big.Int {
		term, sum, square := new(big.Int).Div(one, big.NewInt(x)), new(big.Int), big.NewInt(x*x)
		for n := int64(1); term.Sign() != 0; n += 2 {
			part := new(big.Int).Div(term, big.NewInt(n))
			if n%4 == 1 {
				sum.Add(sum, part)
			} else {
				sum.Sub(sum, part)
			}
			term.Div(term, square)
		}
		return sum
	}
	pi := arctangent(5)
	pi.Mul(pi, big.NewInt(4)).Sub(pi, arctangent(239)).Mul(pi, big.NewInt(4))
	return pi.Rsh(pi, guard)
}
