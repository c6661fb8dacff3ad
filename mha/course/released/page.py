def text(*a): return ""
def written(*a): return ""
