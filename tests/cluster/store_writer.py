"""A process that writes one source of a shared database until it is killed: `store_writer.py URL NAME
SEED`.
"""

import random
import sys

from store_tree import make

from ctx.cluster.catalog import PostgresCatalog

DOCUMENTS = 40  # of the source


def main(url: str, name: str, seed: int) -> None:
    lots = random.Random(seed)
    with PostgresCatalog(url) as catalog:
        print("ready", flush=True)
        while True:
            numbers = lots.sample(range(DOCUMENTS), k=lots.randint(1, 5))
            if lots.random() < 0.2:
                catalog.delete_documents(name, [f"{number}.md" for number in numbers])
                continue
            catalog.put_documents(
                [make(name, f"{number}.md", [f"otter {number} {lots.random()}"]) for number in numbers]
            )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
