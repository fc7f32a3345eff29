#!/bin/sh
# How many commits there are.
git rev-list --count HEAD
