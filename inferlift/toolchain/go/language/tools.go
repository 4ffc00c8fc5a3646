//go:build tools

package language

import _ "github.com/pulumi/pulumi/sdk/v3/python/cmd/pulumi-language-python"
