// Command olm-verify checks bundles with the validation library of the Operator Lifecycle Manager.
//
// Each argument is the directory of a bundle. Errors and warnings are printed as JSON, one per line;
// the program exits with 1 if a directory contains no bundle.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

var validators = validation.DefaultBundleValidators.WithValidators(
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
	validation.ObjectValidator,
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
)

type finding struct {
	Bundle string `json:"bundle"`
	Level  string `json:"level"`
	Detail string `json:"detail"`
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, directory := range os.Args[1:] {
		bundle, err := manifests.GetBundleFromDir(directory)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", directory, err)
			os.Exit(1)
		}
		objects := append(bundle.ObjectsToValidate(), map[string]string{"k8s-version": "1.36"})
		for _, result := range validators.Validate(objects...) {
			for _, each := range result.Errors {
				_ = out.Encode(finding{directory, "error", each.Error()})
			}
			for _, each := range result.Warnings {
				_ = out.Encode(finding{directory, "warning", each.Error()})
			}
		}
	}
}
