"""What a query reads of topics: queues, starts and ends, tasks; shared by Spark and Ray Data."""
