# After a self-test: its processes and its files go. Root. stdin: as of seal.sh.
known=$(cat)
quieten
forget
