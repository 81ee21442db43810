package cache

import (
	"fmt"
	"os"
	"path/filepath"
)

// Variable is the environment variable that says where the cache is: a
// directory, or Off. Without it, it is in the user's cache directory.
const (
	Variable = "MLAGEN_CACHE"
	Off      = "off"
)

// Default returns the store that the environment asks for, nil for none.
func Default() (*Store, error) {
	dir := os.Getenv(Variable)
	switch dir {
	case Off:
		return nil, nil
	case "":
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no place for a cache: %w; set %s to a directory, or to %s", err, Variable, Off)
		}
		dir = filepath.Join(user, "mlagen") // relative where HOME is
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cache %s: %w; set %s to an absolute path", dir, err, Variable)
	}
	return New(absolute, 0), nil
}
