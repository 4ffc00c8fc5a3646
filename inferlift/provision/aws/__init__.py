"""AWS as a target: Pulumi programs of small components, checks before money is spent, listings that prove what is.

`plan` is pure; `program` and what it is made of need pulumi-aws; everything that asks AWS goes through `session`.
"""
