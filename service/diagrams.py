def draw_reliability(table, media_type):
    return b""
