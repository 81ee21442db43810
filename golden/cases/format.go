package cases

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Format writes the case as Parse reads it, without the fields that are as in
// Default.
func (c *Case) Format() []byte {
	var b bytes.Buffer
	_ = json.Indent(&b, object(reflect.ValueOf(*c), reflect.ValueOf(Default())), "", " ") // it is JSON: it was made here
	return append(b.Bytes(), '\n')
}

// object is a struct's fields that differ from those of same, in their order.
func object(v, same reflect.Value) []byte {
	b := []byte("{")
	for i := range v.NumField() {
		field, other := v.Field(i), same.Field(i)
		if reflect.DeepEqual(field.Interface(), other.Interface()) {
			continue
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		var text []byte
		if _, own := field.Interface().(json.Marshaler); field.Kind() == reflect.Struct && !own {
			text = object(field, other)
		} else {
			var err error
			if text, err = json.Marshal(field.Interface()); err != nil {
				panic(err) // no field of a case has a type that JSON lacks
			}
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), '"', ':')
		b = append(b, text...)
	}
	return append(b, '}')
}
