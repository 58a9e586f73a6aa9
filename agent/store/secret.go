// SPDX-License-Identifier: Apache-2.0

// Secrets at rest: specs of kinds with secret fields are encrypted with AES-256-GCM (NIST SP 800-38D) and a key in a
// file beside the database, which only its owner can read.
package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sluice.dev/sluice/agent/object"
)

const keyLength = 32

// ErrKey is the error of a value that was encrypted with another key.
var ErrKey = errors.New("not encrypted with this key")

// keyPath of a database's key.
func keyPath(path string) string { return path + ".key" }

// openKey reads the key, or makes one.
func openKey(path string) (cipher.AEAD, error) {
	key, err := os.ReadFile(keyPath(path))
	if errors.Is(err, fs.ErrNotExist) {
		key, err = makeKey(keyPath(path))
	}
	if err != nil {
		return nil, err
	}
	is, err := os.Stat(keyPath(path))
	switch {
	case err != nil:
		return nil, err
	case is.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s: its mode is %04o: others can read the key; make it 0600", keyPath(path), is.Mode().Perm())
	case len(key) != keyLength:
		return nil, fmt.Errorf("%s: it has %d bytes; a key has %d", keyPath(path), len(key), keyLength)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// makeKey leaves a whole key or none, whenever the machine ends.
func makeKey(path string) ([]byte, error) {
	key := make([]byte, keyLength)
	if _, err := rand.Read(key); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(key)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return nil, err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return key, errors.Join(directory.Sync(), directory.Close())
}

// encrypted returns the nonce and the ciphertext, bound to the object and owner.
func (s *Store) encrypted(k object.Key, owner, text string) ([]byte, error) {
	nonce := make([]byte, s.key.NonceSize(), s.key.NonceSize()+len(text)+s.key.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return s.key.Seal(nonce, nonce, []byte(text), bound(k, owner)), nil
}

func (s *Store) decrypted(k object.Key, owner, text string) ([]byte, error) {
	if len(text) < s.key.NonceSize() {
		return nil, fmt.Errorf("%w: %s", ErrKey, k)
	}
	plain, err := s.key.Open(nil, []byte(text[:s.key.NonceSize()]), []byte(text[s.key.NonceSize():]), bound(k, owner))
	if err != nil {
		return nil, fmt.Errorf("%w: %s; put the key back that was in %s", ErrKey, k, keyPath(s.path))
	}
	return plain, nil
}

func bound(k object.Key, owner string) []byte { return []byte(k.String() + "\x00" + owner) }
