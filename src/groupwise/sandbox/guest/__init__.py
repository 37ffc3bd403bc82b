"""What runs on the untrusted side: standard library only, importable without the rest of groupwise.

The zygote imports this folder as the package `guest`; the parent and the tests as
`groupwise.sandbox.guest`. Nothing here knows an expected value.
"""
