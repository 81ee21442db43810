package runtime

import "errors"

// LoadDecodes loads decodes that differ in their variants, all of them compiled
// side by side, in the order in which they are given. Kernels that they have in
// common, as those have that differ in their schedule alone, are loaded once. At
// the first error those that were loaded are closed.
func LoadDecodes(drv Driver, variants []DecodeVariants, o ...LoadOption) ([]*Decode, error) {
	var all []Variant
	for _, v := range variants {
		all = append(all, v.all()...)
	}
	return loadAhead(drv, o, all, func(l *loader) (decodes []*Decode, err error) {
		for _, v := range variants {
			d, err := loadDecode(l, v)
			if err != nil {
				for _, d := range decodes {
					err = errors.Join(err, d.Close())
				}
				return nil, err
			}
			decodes = append(decodes, d)
			l.loaded = append(l.loaded, d.Kernels()...)
		}
		return decodes, nil
	})
}
