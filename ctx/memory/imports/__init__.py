"""How other products write their memories down: a module for each way, values in and values out."""
